package vpp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	binapi "go.fd.io/govpp/binapi/memif"

	interfaces "go.fd.io/govpp/binapi/interface"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/wire"
)

// memifLab is a lab with a directory for the sockets of memifs.
type memifLab struct {
	*lab
	ruins     *ruins
	connected chan string
	root      string
}

func newMemifLab(t *testing.T) memifLab {
	t.Helper()
	root, err := os.MkdirTemp("", "m") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	l := memifLab{root: root, connected: make(chan string, 10), ruins: newRuins(t)}
	l.lab = newWholeLab(t, l.ruins.socket, func(v string) { l.connected <- v })
	<-l.connected
	l.client.options.Sockets = root
	return l
}

// allocation is a directory and a socket in it, as a container's are.
func (l memifLab) allocation(name string, id uint32) []object {
	dir := filepath.Join(l.root, name)
	return []object{
		{wire.FileKey(dir), wire.File{Type: wire.Directory, Mode: 0o750 | fs.ModeSetgid}},
		{
			wire.MemifSocketKey(name),
			wire.MemifSocket{ID: id, Path: filepath.Join(dir, "memif.sock"), Directory: wire.FileKey(dir)},
		},
	}
}

// memifOn is a memif with the id on the socket of an allocation.
func memifOn(name, allocation string, id uint32) object {
	return object{
		wire.InterfaceKey(name),
		wire.Interface{Type: wire.TypeMemif, MAC: mac1, MTU: 1500, Up: true, Memif: wire.Memif{
			Socket:     allocation,
			ID:         id,
			Mode:       wire.MemifEthernet,
			Secret:     "open sesame",
			RingSize:   1024,
			BufferSize: 2048,
			RxQueues:   1,
			TxQueues:   1,
		}},
	}
}

// with returns the object with a changed interface.
func (o object) with(change func(*wire.Interface)) object {
	v := o.value.(wire.Interface)
	change(&v)
	return object{o.key, v}
}

// memifs describes the dataplane's memifs, by their tags, and its sockets but its own.
func (l memifLab) memifs() (memifs, sockets []string) {
	l.Helper()
	p, err := l.client.ports(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	for _, d := range p.list {
		if m, is := p.memifs.byIndex[Index(d.SwIfIndex)]; is {
			tag, _, _ := strings.Cut(d.Tag, "#")
			memifs = append(memifs, fmt.Sprintf("%s %d/%d", tag, m.SocketID, m.ID))
		}
	}
	for id, path := range p.memifs.sockets {
		if id != 0 {
			sockets = append(sockets, fmt.Sprintf("%d %s", id, filepath.Base(filepath.Dir(path))))
		}
	}
	slices.Sort(memifs)
	slices.Sort(sockets)
	return memifs, sockets
}

func (l memifLab) mustHave(memifs, sockets string) {
	l.Helper()
	m, s := l.memifs()
	if got, want := fmt.Sprint(m, s), fmt.Sprintf("[%s] [%s]", memifs, sockets); got != want {
		l.Errorf("memifs and sockets: %s, want %s", got, want)
	}
}

// connect connects like a program in a pod.
func (l memifLab) connect(allocation string, c memif.ClientConfig) error {
	l.Helper()
	c.Socket = filepath.Join(l.root, allocation, "memif.sock")
	c.Name = "test"
	c.Timeout = time.Minute
	conn, err := memif.Connect(l.Context(), c)
	if err == nil {
		conn.Close()
		conn.Release()
	}
	return err
}

func TestMemifIsMadeReadBackChangedAndRemoved(t *testing.T) {
	for name, change := range map[string]func(*wire.Interface){
		"in place": func(v *wire.Interface) {
			v.MAC = mac2
			v.MTU = 1400
			v.Up = false
		},
		"a secret":  func(v *wire.Interface) { v.Memif.Secret = "another" },
		"no secret": func(v *wire.Interface) { v.Memif.Secret = "" },
		"a ring":    func(v *wire.Interface) { v.Memif.RingSize = 512 },
		"a buffer":  func(v *wire.Interface) { v.Memif.BufferSize = 4096 },
		"queues": func(v *wire.Interface) {
			v.Memif.RxQueues = 2
			v.Memif.TxQueues = 3
		},
		"an id":  func(v *wire.Interface) { v.Memif.ID = 7 },
		"a mode": func(v *wire.Interface) { v.Memif.Mode = wire.MemifIP },
		"another type": func(v *wire.Interface) {
			v.Type = wire.TypeLoopback
			v.Memif = wire.Memif{}
		},
		"no MAC wanted": func(v *wire.Interface) { v.MAC = netaddr.MAC{} },
	} {
		t.Run(name, func(t *testing.T) {
			l := newMemifLab(t)
			first := memifOn("m1", "a", 1)
			l.try(l.allocation("a", 5), trial{backendOf(interfaceDescriptor), first, first.with(change)})
			l.mustHave("", "")
		})
	}
}

// VPP has a ring of 1 slot and buffers of 0 bytes for each memif of which it is the server, also with a client whose
// rings are larger.
func TestUnknownSizesOfAMemifAreZero(t *testing.T) {
	l := newMemifLab(t)
	l.mustCommit(append(l.allocation("a", 5), memifOn("m1", "a", 1))...)
	conn, err := memif.Connect(l.Context(), memif.ClientConfig{
		Socket:   filepath.Join(l.root, "a", "memif.sock"),
		Name:     "test",
		Timeout:  time.Minute,
		ID:       1,
		Secret:   "open sesame",
		RingSize: 1024,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	defer conn.Close()
	all, err := l.client.Inventory().Memifs(l.Context())
	if err != nil || len(all) != 1 || (all[0].BufferSize == 0) != (all[0].RingSize == 0) {
		t.Errorf("%+v (%v)", all, err)
	}
}

func TestMemifSocketIsMadeReadBackChangedAndRemoved(t *testing.T) {
	l := newMemifLab(t)
	dir := l.allocation("a", 5)[0]
	first := l.allocation("a", 5)[1]
	moved := l.allocation("a", 6)[1]
	l.try([]object{dir}, trial{backendOf(memifSocketDescriptor), first, moved})
}

func TestMemifRefusesClientsWithAnotherSecret(t *testing.T) {
	l := newMemifLab(t)
	on := memifOn("m1", "a", 1)
	if err := l.commit(on); err == nil || !strings.Contains(err.Error(), wire.MemifSocketKey("a")) {
		t.Errorf("without a socket: %v", err)
	}
	l.mustCommit(append(l.allocation("a", 5), on)...)
	mustConnect := func(secret memif.Secret) {
		t.Helper()
		if err := l.connect("a", memif.ClientConfig{ID: 1, Secret: secret}); err != nil {
			t.Error(err)
		}
		refusal := new(memif.DisconnectError)
		if err := l.connect("a", memif.ClientConfig{ID: 1, Secret: secret[1:]}); !errors.As(err, &refusal) {
			t.Errorf("with a wrong secret: %v", err)
		}
	}
	mustConnect("open sesame")
	l.mustCommit(on.with(func(v *wire.Interface) { v.Memif.Secret = "another" }))
	mustConnect("another")
}

func TestSocketIsReachableOnlyThroughItsDirectory(t *testing.T) {
	l := newMemifLab(t)
	all := append(l.allocation("a", 5), memifOn("m1", "a", 1))
	socket := filepath.Join(l.root, "a", "memif.sock")
	l.mustCommit(append(all, object{
		wire.FileKey(socket), wire.File{Type: wire.Socket, Mode: 0o660, On: wire.InterfaceKey("m1")},
	})...)
	l.quiet()
	info, err := os.Lstat(socket)
	if err != nil || info.Mode() != fs.ModeSocket|0o660 {
		t.Fatalf("socket %v, error %v", info, err)
	}
	for _, o := range append(all, object{key: wire.FileKey(socket)}) {
		l.mustCommit(object{o.key, nil})
	}
	if _, err := os.Lstat(filepath.Dir(socket)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory is left: %v", err)
	}
}

func TestNumberAndPathOfASocketAreUnique(t *testing.T) {
	l := newMemifLab(t)
	l.mustCommit(append(l.allocation("a", 5), l.allocation("b", 6)[0])...)
	err := l.commit(l.allocation("b", 5)[1])
	if err == nil ||
		!strings.Contains(err.Error(),
			"the number is that of the socket at "+filepath.Join(l.root, "a", "memif.sock")) {
		t.Errorf("a number twice: %v", err)
	}
	twice := l.allocation("a", 7)[1]
	twice.key = wire.MemifSocketKey("c")
	if err := l.commit(twice); err == nil || !strings.Contains(err.Error(), "the path is that of socket 5") {
		t.Errorf("a path twice: %v", err)
	}
	l.mustHave("", "5 a")
}

func TestSocketInUseIsNotDeleted(t *testing.T) {
	l := newMemifLab(t)
	l.mustCommit(l.allocation("a", 5)...)
	made := &binapi.MemifCreateV2Reply{}
	l.send(&binapi.MemifCreateV2{SocketID: 5, ID: 9, RxQueues: 1, TxQueues: 1, RingSize: 1024, BufferSize: 2048}, made)
	l.send(&interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: made.SwIfIndex, Tag: "theirs"},
		&interfaces.SwInterfaceTagAddDelReply{})
	err := l.commit(object{wire.MemifSocketKey("a"), nil})
	if err == nil || !strings.Contains(err.Error(), "memif_socket_filename_add_del_v2: delete 5") {
		t.Errorf("delete: %v", err)
	}
	if err := l.commit(memifOn("m1", "a", 9)); err == nil || !strings.Contains(err.Error(), "theirs") {
		t.Errorf("an id of a third party: %v", err)
	}
	l.mustHave("theirs 5/9", "5 a")
}

func TestMemifOfAnOldSandboxMakesRoomForTheNewOne(t *testing.T) {
	l := newMemifLab(t)
	l.mustCommit(append(l.allocation("a", 5), memifOn("old", "a", 1))...)
	l.mustCommit(object{wire.InterfaceKey("old"), nil}, memifOn("new", "a", 1))
	l.quiet()
	l.mustHave("new 5/1", "5 a")
}

func TestUntaggedMemifIsReplaced(t *testing.T) {
	l := newMemifLab(t)
	l.mustCommit(l.allocation("a", 5)...)
	l.send(
		&binapi.MemifCreateV2{
			SocketID:   5,
			ID:         1,
			RxQueues:   1,
			TxQueues:   1,
			RingSize:   1024,
			BufferSize: 2048,
			Secret:     "an older one",
		},
		&binapi.MemifCreateV2Reply{})
	l.mustCommit(memifOn("m1", "a", 1))
	l.quiet()
	l.mustHave("m1 5/1", "5 a")
	if err := l.connect("a", memif.ClientConfig{ID: 1, Secret: "open sesame"}); err != nil {
		t.Error(err)
	}
}

func TestOrphanedMemifsAndSocketsAreRemovedAndForeignOnesKept(t *testing.T) {
	l := newMemifLab(t)
	other, err := os.MkdirTemp("", "o")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	for id, dir := range map[uint32]string{3: filepath.Join(l.root, "gone"), 4: filepath.Join(other, "theirs")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l.send(&binapi.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: id, SocketFilename: dir + "/memif.sock"},
			&binapi.MemifSocketFilenameAddDelV2Reply{})
		l.send(&binapi.MemifCreateV2{SocketID: id, ID: 1, RxQueues: 1, TxQueues: 1, RingSize: 1024, BufferSize: 2048},
			&binapi.MemifCreateV2Reply{})
	}
	l.resync()
	l.quiet()
	l.mustHave(" 4/1", "4 theirs")
}

func TestMemifsComeBackAfterTheDataplaneDied(t *testing.T) {
	l := newMemifLab(t)
	socket := filepath.Join(l.root, "a", "memif.sock")
	all := append(l.allocation("a", 5), memifOn("m1", "a", 1), memifOn("m2", "a", 2),
		object{wire.FileKey(socket), wire.File{Type: wire.Socket, Mode: 0o660, On: wire.InterfaceKey("m1")}})
	l.mustCommit(all...)
	l.revive(l.ruins, l.connected, all)
	l.mustHave("m1 5/1 m2 5/2", "5 a")
	if err := l.connect("a", memif.ClientConfig{ID: 2, Secret: "open sesame"}); err != nil {
		t.Error(err)
	}
}

func TestOwnPortsAreMemifsToo(t *testing.T) {
	l := newMemifLab(t)
	on := memifOn("m1", "a", 3)
	l.mustCommit(append(append(l.allocation("a", 5), on, bridge("weft:blue", learning(7))),
		inBridge("weft:blue", "m1"))...)
	ports, err := l.client.Inventory().OwnPorts(t.Context())
	if err != nil || len(ports) != 1 {
		t.Fatalf("own ports %+v, error %v", ports, err)
	}
	p := ports[0]
	want := on.value.(wire.Interface)
	if p.Name != "m1" || p.Socket != filepath.Join(l.root, "a", "memif.sock") || p.Interface.Memif.ID != 3 ||
		p.Interface.Memif.Mode != wire.MemifEthernet {
		t.Errorf("port %+v", p)
	}
	if fmt.Sprint(p.Labels) != "[weft:blue]" || p.Interface.Memif.Socket != "a" || p.Interface.Memif.Secret != "" {
		t.Errorf("port %+v", p)
	}
	if !p.MadeAs(want) ||
		p.MadeAs(on.with(func(v *wire.Interface) { v.Memif.Secret = "guessed" }).value.(wire.Interface)) {
		t.Error("the tag does not tell with what secret it was made")
	}
}
