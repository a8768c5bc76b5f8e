// Package api serves VPP's binary API on a unix stream socket. The model executes the requests.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/gso"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip6_nd"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/punt"
	"go.fd.io/govpp/binapi/span"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/tracedump"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/binapi/vpe_types"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/vswitch/model"
)

// Limits bounds the resources of clients. A zero field selects the default.
type Limits struct {
	Clients   int           // concurrent connections, default 64
	Handshake time.Duration // from connect to sockclnt_create, default 10 s
	Write     time.Duration // one blocked write, default 10 s
}

func (l *Limits) setDefaults() {
	l.Clients = cmp.Or(l.Clients, 64)
	l.Handshake = cmp.Or(l.Handshake, 10*time.Second)
	l.Write = cmp.Or(l.Write, 10*time.Second)
}

// Server serves VPP's binary API. It answers the requests of one connection in order.
type Server struct {
	model  *model.Model
	log    *slog.Logger
	limits Limits
	table  *table
	events subscriptions

	mu      sync.Mutex
	clients map[uint32]*client
	last    uint32 // last allocated client index
}

// New returns a server for m.
func New(m *model.Model, log *slog.Logger, limits Limits) *Server {
	limits.setDefaults()
	s := &Server{model: m, log: log, limits: limits, table: newTable(), clients: map[uint32]*client{}}
	s.events.pids = map[*client]uint32{}
	for _, m := range []api.Message{
		&memclnt.SockclntCreate{}, &memclnt.SockclntCreateReply{}, &interfaces.SwInterfaceEvent{},
	} {
		s.table.add(m)
	}
	for _, h := range slices.Concat(connectionHandlers, interfaceHandlers, tapHandlers, afPacketHandlers, memifHandlers,
		vxlanHandlers,
		puntHandlers, aclHandlers, neighbourHandlers, routeHandlers, addressHandlers, bridgeHandlers, spanHandlers,
		policerHandlers, traceHandlers, cliHandlers) {
		s.table.register(h)
	}
	return s
}

// Serve accepts clients on l until ctx ends. Then it closes l and all connections,
// and returns nil when all its goroutines have ended.
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
			s.log.Warn("client rejected", "err", err)
			_ = conn.Close()
			continue
		}
		wg.Go(func() { s.serve(c) })
	}
}

// pause waits before the next Accept after one failed for lack of resources, usually file descriptors.
func (s *Server) pause(ctx context.Context, err error) error {
	if ne := net.Error(nil); !errors.As(err, &ne) {
		return fmt.Errorf("accept API client: %w", err)
	}
	s.log.Warn("accept failed", "err", err)
	_ = retry.Pause(ctx, 100*time.Millisecond)
	return nil
}

// admit allocates a client index for conn. Indexes are not reused soon.
func (s *Server) admit(ctx context.Context, conn net.Conn) (*client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(s.clients) >= s.limits.Clients {
		return nil, fmt.Errorf("connect API client: the limit of %d clients is reached", len(s.clients))
	}
	s.last = (s.last + 1) &^ socketClient
	c := &client{server: s, conn: conn, out: newOutbox(conn, s.limits.Write), index: s.last | socketClient}
	s.clients[c.index] = c
	return c, nil
}

// socketClient is the bit that VPP sets in the index of a socket client.
const socketClient = 1 << 31

// serve serves one client until its connection ends.
func (s *Server) serve(c *client) {
	written := make(chan error, 1)
	go func() {
		err := c.out.run()
		if !errors.Is(err, errDisconnect) {
			_ = c.conn.Close() // unblocks the reader
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
	if isDisconnect(err) {
		s.log.Debug("client disconnected", "client", c.name, "index", c.index)
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

// The reply to show_version: the VPP release of the API, with a suffix that identifies weft-vswitch.
const (
	program = "weft-vswitch"
	version = "25.10-weft"
)

// connectionHandlers serve the connection itself, and the version and the time of the dataplane.
var connectionHandlers = []handler{
	{newRequest: newMessage[memclnt.SockclntDelete], reply: &memclnt.SockclntDeleteReply{}, answer: disconnect},
	handle(func(c *client, _ *memclnt.ControlPing) (*memclnt.ControlPingReply, error) {
		return &memclnt.ControlPingReply{ClientIndex: c.index, VpePID: uint32(os.Getpid())}, nil
	}),
	set[memclnt.MemclntKeepaliveReply](func(*model.Model, *memclnt.MemclntKeepalive) error { return nil }),
	call(func(*model.Model, *memclnt.APIVersions) (*memclnt.APIVersionsReply, error) {
		return &memclnt.APIVersionsReply{APIVersions: apiVersions()}, nil
	}),
	call(func(*model.Model, *vpe.ShowVersion) (*vpe.ShowVersionReply, error) {
		return &vpe.ShowVersionReply{Program: program, Version: version}, nil
	}),
	call(func(*model.Model, *vpe.ShowVpeSystemTime) (*vpe.ShowVpeSystemTimeReply, error) {
		now := float64(time.Now().UnixNano()) / float64(time.Second)
		return &vpe.ShowVpeSystemTimeReply{VpeSystemTime: vpe_types.Timestamp(now)}, nil
	}),
}

// disconnect replies 1, as VPP does, and ends the connection. Clients often do not read the reply.
func disconnect(_ *client, _ api.Message, send func(api.Message) error) error {
	if err := send(&memclnt.SockclntDeleteReply{Response: 1}); err != nil {
		return err
	}
	return errDisconnect
}

// apiVersions returns the versions of the .api files of all handlers.
func apiVersions() []memclnt.ModuleVersion {
	return []memclnt.ModuleVersion{
		moduleVersion(memclnt.APIFile, memclnt.APIVersion),
		moduleVersion(vpe.APIFile, vpe.APIVersion),
		moduleVersion(vlib.APIFile, vlib.APIVersion),
		moduleVersion(interfaces.APIFile, interfaces.APIVersion),
		moduleVersion(gso.APIFile, gso.APIVersion),
		moduleVersion(span.APIFile, span.APIVersion),
		moduleVersion(policer.APIFile, policer.APIVersion),
		moduleVersion(feature.APIFile, feature.APIVersion),
		moduleVersion(tracedump.APIFile, tracedump.APIVersion),
		moduleVersion(tapv2.APIFile, tapv2.APIVersion),
		moduleVersion(af_packet.APIFile, af_packet.APIVersion),
		moduleVersion(memif.APIFile, memif.APIVersion),
		moduleVersion(vxlan.APIFile, vxlan.APIVersion),
		moduleVersion(l2.APIFile, l2.APIVersion),
		moduleVersion(acl.APIFile, acl.APIVersion),
		moduleVersion(arp.APIFile, arp.APIVersion),
		moduleVersion(ip6_nd.APIFile, ip6_nd.APIVersion),
		moduleVersion(ip.APIFile, ip.APIVersion),
		moduleVersion(ip_neighbor.APIFile, ip_neighbor.APIVersion),
		moduleVersion(punt.APIFile, punt.APIVersion),
	}
}

// moduleVersion parses a version such as "1.2.3".
func moduleVersion(file, version string) memclnt.ModuleVersion {
	v := memclnt.ModuleVersion{Name: file + ".api"}
	_, _ = fmt.Sscanf(version, "%d.%d.%d", &v.Major, &v.Minor, &v.Patch) // versions are constants of govpp
	return v
}

// fixedIDs are the message ids of memclnt.api, equal in all VPP releases. Clients hard-code the id of sockclnt_create.
var fixedIDs = map[string]uint16{
	"api_versions": 12, "api_versions_reply": 13,
	"sockclnt_create": 15, "sockclnt_create_reply": 16,
	"sockclnt_delete": 17, "sockclnt_delete_reply": 18,
	"memclnt_keepalive": 21, "memclnt_keepalive_reply": 22,
	"control_ping": 23, "control_ping_reply": 24,
}

// firstFreeID is the first id after the ids of memclnt.api.
const firstFreeID = 29

// table assigns ids to the messages that this server can receive or send. A client that needs another message
// finds it missing in the table and fails at once instead of waiting for a reply.
type table struct {
	ids      map[string]uint16 // name_crc -> id
	requests map[uint16]handler
	next     uint16
}

func newTable() *table {
	return &table{ids: map[string]uint16{}, requests: map[uint16]handler{}, next: firstFreeID}
}

// add assigns an id to m, if m has no id, and returns the id.
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

// register adds a request with its handler, and the reply.
func (t *table) register(h handler) {
	t.add(h.reply)
	t.requests[t.add(h.newRequest())] = h
}

// id returns the id of m, which add has registered.
func (t *table) id(m api.Message) uint16 { return t.ids[messageKey(m)] }

// entries returns the message table of sockclnt_create_reply, highest id first: govpp searches sockclnt_delete as the
// last name that begins with "sockclnt_delete_", and the name of its reply, which has a higher id, begins so too.
func (t *table) entries() []memclnt.MessageTableEntry {
	list := make([]memclnt.MessageTableEntry, 0, len(t.ids))
	for key, id := range t.ids {
		list = append(list, memclnt.MessageTableEntry{Index: id, Name: key})
	}
	slices.SortFunc(list, func(a, b memclnt.MessageTableEntry) int { return cmp.Compare(b.Index, a.Index) })
	return list
}

// messageKey returns the key of a message in the table: its name and the CRC of its definition, so that client and
// server detect different versions of a message.
func messageKey(m api.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }
