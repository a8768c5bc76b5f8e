// Package api serves VPP's binary API on a unix stream socket, answering from the model.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/arp"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip6_nd"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/binapi/vpe_types"

	"github.com/weftnet/weft/vswitch/model"
)

// Limits bound what clients can cost; a zero field means its default.
type Limits struct {
	Clients   int           // connections at once, 64
	Handshake time.Duration // from connect to sockclnt_create, 10 s
	Write     time.Duration // one write to a client that does not read, 10 s
}

func (l *Limits) setDefaults() {
	if l.Clients == 0 {
		l.Clients = 64
	}
	if l.Handshake == 0 {
		l.Handshake = 10 * time.Second
	}
	if l.Write == 0 {
		l.Write = 10 * time.Second
	}
}

// Server answers VPP's binary API. Requests of one connection are answered strictly in order.
type Server struct {
	model  *model.Model
	log    *slog.Logger
	limits Limits
	table  *table
	events subscriptions

	mu      sync.Mutex
	clients map[uint32]*client
	last    uint32 // last index given away
}

// New makes a server that answers from m.
func New(m *model.Model, log *slog.Logger, limits Limits) *Server {
	limits.setDefaults()
	s := &Server{model: m, log: log, limits: limits, table: newTable(), clients: map[uint32]*client{}}
	s.events.pids = map[*client]uint32{}
	s.addMemclnt()
	s.addVersion()
	s.addInterfaces()
	s.addLoopbacks()
	s.addTaps()
	s.addAFPackets()
	s.addMemifs()
	s.addVXLANs()
	s.addPunts()
	s.addMACIPs()
	s.addACLs()
	s.addProxies()
	s.addTables()
	s.addRoutes()
	s.addAddresses()
	s.addNeighbours()
	s.addBridges()
	s.addCLI()
	return s
}

// Serve answers the clients of l until ctx ends, then closes l and all connections
// and returns nil when every goroutine has gone.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		_ = l.Close() // Accept reports it
		s.closeAll()
	})
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				s.closeAll()
				return nil
			}
			if err := s.pause(ctx, err); err != nil {
				return err
			}
			continue
		}
		c, err := s.admit(ctx, conn)
		if err != nil {
			s.log.Warn("client refused", "err", err)
			_ = conn.Close()
			continue
		}
		wg.Go(func() { s.serve(c) })
	}
}

// pause waits before the next Accept after one that failed for want of something, descriptors most likely.
func (s *Server) pause(ctx context.Context, err error) error {
	if ne := net.Error(nil); !errors.As(err, &ne) {
		return fmt.Errorf("accept API client: %w", err)
	}
	s.log.Warn("accept failed", "err", err)
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
	return nil
}

// admit gives conn an index, which is not used again soon.
func (s *Server) admit(ctx context.Context, conn net.Conn) (*client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(s.clients) >= s.limits.Clients {
		return nil, fmt.Errorf("%d clients are connected already", len(s.clients))
	}
	s.last = (s.last + 1) &^ socketClient
	c := &client{server: s, conn: conn, out: newOutbox(conn, s.limits.Write), index: s.last | socketClient}
	s.clients[c.index] = c
	return c, nil
}

// socketClient marks the index of a client on a socket, as VPP does.
const socketClient = 1 << 31

// serve runs one client to its end.
func (s *Server) serve(c *client) {
	written := make(chan error, 1)
	go func() {
		err := c.out.run()
		if !errors.Is(err, errGoodbye) {
			_ = c.conn.Close() // ends the reading side
		}
		written <- err
	}()
	err := c.serve()
	s.events.remove(c)
	c.out.flush()
	c.out.close(err)
	if werr := <-written; errors.Is(werr, errSlowReader) {
		err = werr
	}
	_ = c.conn.Close()
	s.mu.Lock()
	delete(s.clients, c.index)
	s.mu.Unlock()
	if wentAway(err) {
		s.log.Debug("client gone", "client", c.name, "index", c.index)
		return
	}
	s.log.Warn("client dropped", "client", c.name, "index", c.index, "err", err)
}

func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		_ = c.conn.Close()
	}
}

// Version is what show_version says: whose API this is the likeness of, and that it is not VPP itself.
const (
	program = "weft-vswitch"
	version = "25.10-weft"
)

func (s *Server) addVersion() {
	handle(s, func(*client, *vpe.ShowVersion) (*vpe.ShowVersionReply, error) {
		return &vpe.ShowVersionReply{Program: program, Version: version}, nil
	})
	handle(s, func(*client, *vpe.ShowVpeSystemTime) (*vpe.ShowVpeSystemTimeReply, error) {
		now := float64(time.Now().UnixNano()) / float64(time.Second)
		return &vpe.ShowVpeSystemTimeReply{VpeSystemTime: vpe_types.Timestamp(now)}, nil
	})
}

// apiVersions are the versions of the .api files whose messages are here.
func apiVersions() []memclnt.ModuleVersion {
	return []memclnt.ModuleVersion{
		moduleVersion(memclnt.APIFile, memclnt.APIVersion),
		moduleVersion(vpe.APIFile, vpe.APIVersion),
		moduleVersion(vlib.APIFile, vlib.APIVersion),
		moduleVersion(interfaces.APIFile, interfaces.APIVersion),
		moduleVersion(tapv2.APIFile, tapv2.APIVersion),
		moduleVersion(af_packet.APIFile, af_packet.APIVersion),
		moduleVersion(memif.APIFile, memif.APIVersion),
		moduleVersion(acl.APIFile, acl.APIVersion),
		moduleVersion(arp.APIFile, arp.APIVersion),
		moduleVersion(ip6_nd.APIFile, ip6_nd.APIVersion),
		moduleVersion(ip.APIFile, ip.APIVersion),
		moduleVersion(ip_neighbor.APIFile, ip_neighbor.APIVersion),
	}
}

// moduleVersion reads "1.2.3".
func moduleVersion(file, version string) memclnt.ModuleVersion {
	var n [3]uint32
	for i, part := range strings.SplitN(version, ".", len(n)) {
		v, err := strconv.ParseUint(part, 10, 32)
		if err == nil {
			n[i] = uint32(v)
		}
	}
	return memclnt.ModuleVersion{Major: n[0], Minor: n[1], Patch: n[2], Name: file + ".api"}
}

// addMemclnt adds the messages about the connection itself.
func (s *Server) addMemclnt() {
	s.table.add(&memclnt.SockclntCreate{})
	s.table.add(&memclnt.SockclntCreateReply{})
	s.table.add(&memclnt.SockclntDeleteReply{})
	s.table.addRequest(&memclnt.SockclntDelete{}, sayGoodbye)
	handle(s, func(c *client, _ *memclnt.ControlPing) (*memclnt.ControlPingReply, error) {
		return &memclnt.ControlPingReply{ClientIndex: c.index, VpePID: uint32(os.Getpid())}, nil
	})
	handle(s, func(*client, *memclnt.MemclntKeepalive) (*memclnt.MemclntKeepaliveReply, error) {
		return nil, nil
	})
	handle(s, func(*client, *memclnt.APIVersions) (*memclnt.APIVersionsReply, error) {
		return &memclnt.APIVersionsReply{APIVersions: apiVersions()}, nil
	})
}

// sayGoodbye answers 1, as VPP does, and ends the connection. The client has often stopped reading by then.
func sayGoodbye(_ *client, _ api.Message, send func(api.Message) error) error {
	if err := send(&memclnt.SockclntDeleteReply{Response: 1}); err != nil {
		return err
	}
	return errGoodbye
}

// fixedIDs are the numbers that memclnt.api has in every VPP; a client knows sockclnt_create's by heart.
var fixedIDs = map[string]uint16{
	"api_versions": 12, "api_versions_reply": 13,
	"sockclnt_create": 15, "sockclnt_create_reply": 16,
	"sockclnt_delete": 17, "sockclnt_delete_reply": 18,
	"memclnt_keepalive": 21, "memclnt_keepalive_reply": 22,
	"control_ping": 23, "control_ping_reply": 24,
}

// firstFreeID is the first number that memclnt.api leaves to others.
const firstFreeID = 29

// table numbers the messages that this server can receive or send, and nothing else:
// what it does not list does not exist for a client, which then fails at once instead of waiting.
type table struct {
	ids      map[string]uint16 // name_crc -> number
	requests map[uint16]request
	next     uint16
}

// request is a message that clients may send.
type request struct {
	message reflect.Type // the struct, not the pointer
	answer  answerFunc
	list    list
}

// answerFunc answers one request by any number of messages given to send.
// An error means that the peer is beyond help: its connection is closed.
type answerFunc func(c *client, req api.Message, send func(api.Message) error) error

func newTable() *table {
	return &table{ids: map[string]uint16{}, requests: map[uint16]request{}, next: firstFreeID}
}

// add numbers m, once.
func (t *table) add(m api.Message) uint16 {
	key := messageKey(m)
	if id, ok := t.ids[key]; ok {
		return id
	}
	id, ok := fixedIDs[m.GetMessageName()]
	if !ok {
		id = t.next
		t.next++
	}
	t.ids[key] = id
	return id
}

// addRequest numbers m and says who answers it.
func (t *table) addRequest(m api.Message, answer answerFunc) {
	t.requests[t.add(m)] = request{message: reflect.TypeOf(m).Elem(), answer: answer}
}

// id is the number of m, which was added before.
func (t *table) id(m api.Message) uint16 { return t.ids[messageKey(m)] }

// entries are what sockclnt_create's reply tells the client, highest number first: govpp takes the last name that
// begins with "sockclnt_delete_" for the request, and the reply's, with the higher number, begins so too.
func (t *table) entries() []memclnt.MessageTableEntry {
	list := make([]memclnt.MessageTableEntry, 0, len(t.ids))
	for key, id := range t.ids {
		list = append(list, memclnt.MessageTableEntry{Index: id, Name: key})
	}
	slices.SortFunc(list, func(a, b memclnt.MessageTableEntry) int { return cmp.Compare(b.Index, a.Index) })
	return list
}

// messageKey is a message's name in the table: the number behind it, made from the message's definition, keeps
// client and server from meaning different messages by one name.
func messageKey(m api.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }
