package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

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
