package conformance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	binapi "go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/memif"
)

const slave = binapi.MEMIF_ROLE_API_SLAVE

// puntKills: the API has the mode, but memif_create_if does not implement it.
var puntKills = map[string]string{
	"25.10": "SIGSEGV in vnet_hw_interface_set_flags_helper: memif_create_if makes no hardware interface for the mode",
	"26.06": "SIGSEGV as in 25.10",
}

var (
	memifDump  = &binapi.MemifDump{}
	socketDump = &binapi.MemifSocketFilenameDump{}
)

func socket(id uint32, path string, add bool) *binapi.MemifSocketFilenameAddDelV2 {
	return &binapi.MemifSocketFilenameAddDelV2{IsAdd: add, SocketID: id, SocketFilename: path}
}

func newMemif(socket, id uint32) *binapi.MemifCreateV2 {
	return &binapi.MemifCreateV2{SocketID: socket, ID: id, HwAddr: mac("02:00:00:00:02:01")}
}

func deleteMemif(i index) *binapi.MemifDelete { return &binapi.MemifDelete{SwIfIndex: i} }

// inRun returns a path in the dataplane's directory.
func (l *lab) inRun(name string) string { return filepath.Join(l.dataplane.Dir(), name) }

// exists records whether a file exists.
func (l *lab) exists(path string) {
	_, err := os.Lstat(path)
	l.note("%s exists: %t", l.printer.replace.Replace(path), err == nil)
}

// dial connects a client and records the result.
func (l *lab) dial(name string, c memif.ClientConfig) *memif.Conn {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 10*time.Second)
	defer cancel()
	conn, err := memif.Connect(ctx, c)
	refused := new(memif.DisconnectError)
	switch {
	case err == nil:
		l.note("client %s: connected", name)
		l.Cleanup(conn.Release)
	case errors.As(err, &refused):
		l.note("client %s: refused: %s", name, refused.Reason)
	default:
		l.note("client %s: no connection: %v", name, l.printer.replace.Replace(err.Error()))
	}
	return conn
}

// awaitLink waits until the dataplane reports the link of a memif as up, which may be after the client's connection.
func (l *lab) awaitLink(i index) {
	l.Helper()
	for deadline := time.Now().Add(capturing); time.Now().Before(deadline); {
		answers, err := l.client.ask(memifDump)
		if err != nil {
			l.Fatal(err)
		}
		for _, m := range answers {
			if d, ok := m.(*binapi.MemifDetails); ok && d.SwIfIndex == i &&
				d.Flags&interface_types.IF_STATUS_API_FLAG_LINK_UP != 0 {
				return
			}
		}
	}
	l.Fatalf("the link of memif %d is not up within %s", i, capturing)
}

var memifCases = []testCase{
	{name: "memif: sockets have numbers", run: func(l *lab) {
		l.each(socketDump, socket(1, l.inRun("one.sock"), true), socket(1, l.inRun("one.sock"), true),
			socket(1, l.inRun("two.sock"), true),
			socket(2, l.inRun("one.sock"), true), socket(0, l.inRun("x.sock"), true),
			socket(0, l.inRun("memif.sock"), true), socket(3, "", true),
			socket(4, "relative.sock", true), socket(5, "abstract:weft", true),
			socket(6, strings.Repeat("/long", 30), true),
			socket(7, l.inRun("no/such/directory/x.sock"), true), socketDump,
			socket(99, "", false), socket(0, "", false), socket(2, l.inRun("other.sock"), false), socket(1, "", false),
			socket(1, "", false), socketDump)
		l.exists(l.inRun("one.sock"))
	}},
	{name: "memif: the dataplane chooses the number of a socket", run: func(l *lab) {
		l.chooses(socket(anyID, l.inRun("any.sock"), true), func(reply api.Message) uint32 {
			return reply.(*binapi.MemifSocketFilenameAddDelV2Reply).SocketID
		})
	}},
	{name: "memif: a server is created, dumped and deleted", run: func(l *lab) {
		path := l.inRun("one.sock")
		l.must(socket(1, path, true))
		l.exists(path)
		full := newMemif(1, 7)
		full.RingSize = 2048
		full.BufferSize = 4096
		full.RxQueues = 2
		full.TxQueues = 2
		full.Secret = "secret"
		full.NoZeroCopy = true
		a := l.make("a", full)
		l.exists(path)
		bare := newMemif(1, 8)
		bare.Mode = binapi.MEMIF_MODE_API_IP
		b := l.make("b", bare)
		l.each(memifDump, dumpOf(a), dumpOf(b), setUp(a, true), setUp(b, true), memifDump, dumpOf(a), dumpOf(b),
			socket(1, "", false), deleteMemif(a), deleteMemif(a), memifDump,
			deleteMemif(b), socket(1, "", false), socketDump, dumpOf(none))
		l.exists(path)
	}},
	{name: "memif: refusals", run: func(l *lab) {
		l.must(socket(1, l.inRun("one.sock"), true))
		l.must(socket(2, l.inRun("two.sock"), true))
		l.must(socket(4, l.inRun("no/directory/x.sock"), true))
		l.make("a", newMemif(1, 7))
		ring := newMemif(1, 8)
		asSlave := newMemif(1, 8)
		ring.RingSize = 1000
		asSlave.Role = slave
		big := newMemif(1, 10)
		small := newMemif(1, 11)
		queues := newMemif(1, 12)
		big.RingSize = 65536
		small.RingSize = 1
		queues.RxQueues = 255
		queues.TxQueues = 255
		other := newMemif(4, 1)
		l.each(newMemif(1, 7), newMemif(99, 1), ring, asSlave, other, deleteMemif(unknown), deleteMemif(0),
			deleteMemif(l.loop(0, "loop")))
		for _, m := range []api.Message{big, small, queues} {
			l.make("odd", m)
		}
		l.ask(memifDump)
	}},
	{name: "memif: mode punt", kills: puntKills, run: func(l *lab) {
		l.must(socket(1, l.inRun("one.sock"), true))
		punt := newMemif(1, 9)
		punt.Mode = binapi.MEMIF_MODE_API_PUNT_INJECT
		l.ask(punt)
	}},
	{name: "memif: names and MACs", run: func(l *lab) {
		l.must(socket(3, l.inRun("one.sock"), true))
		any := newMemif(3, 12)
		any.HwAddr = mac("00:00:00:00:00:00")
		a := l.make("a", any)
		l.each(dumpOf(a), setMAC(a, "02:00:00:00:00:55"), dumpOf(a), mtu(a, 1450), dumpOf(a), mtu(a, 9000), dumpOf(a),
			tag(a, "weft:x", true), dumpOf(a))
	}},
	{name: "memif: a memif without Ethernet", run: func(l *lab) {
		l.must(socket(1, l.inRun("one.sock"), true))
		bare := newMemif(1, 7)
		bare.Mode = binapi.MEMIF_MODE_API_IP
		a := l.make("a", bare)
		l.must(setUp(a, true))
		l.pods()
		l.must(setTable(a, 7, false))
		l.must(setTable(a, 7, true))
		l.each(join(a, 1), l2Entries(1), setMAC(a, "02:00:00:00:00:55"), mtu(a, 1450), dumpOf(a),
			routeMessage(7, "10.1.0.1/32", via(a, "", false)), routeMessage(7, "fd01::1/128", via(a, "", true)),
			routesOf(7, false), routesOf(7, true), neighbourMessage(a, "10.1.0.1", "02:00:00:00:00:01", true),
			neighboursOf(none, false),
			neighbourMessage(a, "fd01::1", "02:00:00:00:00:01", true), allRoutes(7, false), allRoutes(7, true))
	}},
	{name: "memif: clients are refused in order", run: func(l *lab) {
		path := l.inRun("one.sock")
		l.must(socket(1, path, true))
		guarded := newMemif(1, 7)
		guarded.Secret = "secret"
		a := l.make("a", guarded)
		l.must(setUp(a, true))
		good := memif.ClientConfig{Socket: path, ID: 7, Secret: "secret"}
		mode := good
		secret := good
		both := good
		id := good
		mode.Mode = memif.IP
		secret.Secret = "wrong"
		both.Mode = memif.IP
		both.Secret = "wrong"
		id.ID = 8
		bare := good
		bare.Secret = ""
		l.dial("with an unknown id", id)
		l.dial("of another mode", mode)
		l.dial("with a wrong secret", secret)
		l.dial("without a secret", bare)
		l.dial("of another mode with a wrong secret", both)
		l.dial("valid", good)
		l.dial("valid, second", good)
		l.dial("of another mode, when connected", mode)
		l.dial("with a wrong secret, when connected", secret)
		l.dial("with an unknown id, when connected", id)
	}},
	{name: "memif: an unneeded secret", run: func(l *lab) {
		path := l.inRun("one.sock")
		l.must(socket(1, path, true))
		l.make("a", newMemif(1, 7))
		l.dial("with a secret", memif.ClientConfig{Socket: path, ID: 7, Secret: "secret"})
	}},
	{name: "memif: events of clients", run: func(l *lab) {
		path := l.inRun("one.sock")
		l.must(socket(1, path, true))
		l.watch()
		a := l.make("a", newMemif(1, 7))
		l.events(1)
		c := memif.ClientConfig{Socket: path, ID: 7}
		conn := l.dial("while it is down", c)
		l.events(1)
		l.each(memifDump, dumpOf(a), setUp(a, true))
		l.events(1)
		l.each(memifDump, dumpOf(a))
		conn.Release()
		l.events(1)
		l.each(memifDump, dumpOf(a))
		conn = l.dial("while it is up", c)
		l.events(1)
		l.each(memifDump, setUp(a, false))
		l.events(1)
		l.each(memifDump, dumpOf(a), setUp(a, true))
		l.events(1)
		l.ask(dumpOf(a))
		l.must(deleteMemif(a))
		<-conn.Gone()
		gone := new(memif.DisconnectError)
		if errors.As(conn.Err(), &gone) {
			l.note("disconnect reason: %s", gone.Reason)
		}
		l.settle()
	}},
	{name: "memif: a memif in a bridge domain", run: func(l *lab) {
		l.must(socket(1, l.inRun("one.sock"), true))
		a := l.make("a", newMemif(1, 7))
		l.must(setUp(a, true))
		l.each(join(a, 1), bridges(1), joinAs(a, 2, l2.L2_API_PORT_TYPE_BVI, 0), bridges(anyID), deleteMemif(a),
			bridges(anyID))
	}},
	{name: "memif: a socket file that exists", run: func(l *lab) {
		path := l.inRun("one.sock")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			l.Fatal(err)
		}
		l.must(socket(1, path, true))
		l.make("a", newMemif(1, 7))
	}},
	{name: "memif: a socket is reused after its last memif", run: func(l *lab) {
		path := l.inRun("one.sock")
		l.must(socket(1, path, true))
		a := l.make("a", newMemif(1, 7))
		l.must(deleteMemif(a))
		l.exists(path)
		b := l.make("b", newMemif(1, 8))
		l.must(setUp(b, true))
		l.dial("of the second memif", memif.ClientConfig{Socket: path, ID: 8})
		l.awaitLink(b)
		l.each(&interfaces.DeleteLoopback{SwIfIndex: b}, memifDump)
	}},
}
