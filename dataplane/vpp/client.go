// Package vpp realises the desired values of a dataplane over VPP's binary API.
//
// A Client owns the connection; Register adds the kinds of package wire with their backends. Messages come from
// govpp's bindings. The client matches answers to requests by their context and drops an answer that comes after the
// deadline of its request (govpp's streams would pass it to the next stream).
package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.fd.io/govpp/binapi/vpe"

	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/internal/statssocket"
	"github.com/weftnet/weft/kvscheduler"
)

// Options tune a Client. The zero value is usable. Run calls the callbacks one at a time.
type Options struct {
	Logger  *slog.Logger  // default: discard
	Limit   time.Duration // of the wait for one answer; default 5 s
	Probe   time.Duration // between two probes of the dataplane's health; default 1 s
	Redial  time.Duration // between two attempts to connect; default 100 ms
	Sockets string        // directory of our memif sockets; default /run/weft/memif
	Rings   Rings         // of interfaces of type af_packet
	// VethsPerThread limits the receive queues of type af_packet of each thread of VPP; default MaxVethsPerThread,
	// negative: unlimited. weft-vswitch has no limit.
	VethsPerThread int
	// NodeLink reports whether the node itself needs the named interface of type af_packet: it gets room before
	// interfaces of pods.
	NodeLink     func(name string) bool
	GracePeriods *GracePeriods        // expedited for interfaces of type af_packet; nil: never
	StatsSocket  string               // of the stats segment; default: statssocket.Of the API socket
	RunDir       string               // a directory that only root can write to; default os.TempDir()
	Connected    func(version string) // a connection is usable: read the dataplane back
	NotConnected func(error)          // Run could not connect, for a new reason
	CountMatches bool                 // count matches of rules of ACLs, for Client.ACLMatches
	Hold         bool                 // refuse changes after a reconnection until Client.Hold's function is called
	Lost         func(error)          // the connection broke; the outcome of pending operations is unknown
	Disturbed    func(Index)          // an interface was deleted or set down; must not block
	// InTheWay returns why a network namespace ("": the node's) can have no new link of a name; nil: no reason is
	// known. It explains why the dataplane refused a tap.
	InTheWay func(namespace, name string) error
}

// Client is the connection to a dataplane. It survives the dataplane's restarts as long as Run runs. Its methods may be
// called from anywhere.
type Client struct {
	socket  string
	options Options
	stats   *stats

	mu      sync.Mutex
	session *session  // nil: not connected
	version string    // of the last dataplane
	reason  error     // why there is no session
	urgent  time.Time // end of short redial intervals
	held    bool      // changes are refused
}

// New returns a client of the dataplane at socket. Run connects it.
func New(socket string, o Options) *Client {
	o.defaults()
	o.StatsSocket = cmp.Or(o.StatsSocket, statssocket.Of(socket))
	return &Client{
		socket:  socket,
		options: o,
		stats:   &stats{socket: o.StatsSocket, dir: o.RunDir},
		reason:  errors.New("never connected"),
	}
}

// Run connects to the dataplane, probes it, and reconnects after the connection breaks, until ctx ends. It does not use
// a dataplane that lacks a needed message.
func (c *Client) Run(ctx context.Context) error {
	tick := time.NewTicker(c.options.Probe)
	defer tick.Stop()
	for {
		s, _ := c.current()
		if s == nil {
			c.reconnect(ctx)
		} else if c.watch(ctx, s, tick.C) {
			c.drop(s)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Close ends the connection. Call it after Run has returned.
func (c *Client) Close() error {
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.reason = errClosed
	c.mu.Unlock()
	if s != nil {
		s.close()
	}
	c.stats.close()
	return nil
}

// Version returns the program and version of the dataplane.
func (c *Client) Version() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// Health returns nil while the dataplane is connected, else the reason, which wraps kvscheduler.ErrDown.
func (c *Client) Health() error {
	_, err := c.current()
	return err
}

// Hold returns the function that admits changes over the current connection: call it after reading the dataplane back,
// see Options.Hold. That function returns false if the connection has been replaced.
func (c *Client) Hold() (resume func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.session
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if held == nil || c.session != held {
			return false
		}
		c.held = false
		return true
	}
}

// errHeld refuses changes of a dataplane that may be a new process.
var errHeld = errors.New("reconnected, and not yet compared with the desired state")

// admit returns the session for the requests, or the reason why they cannot be sent.
func (c *Client) admit(ctx context.Context, requests []*request) (*session, error) {
	s, err := c.current()
	if err == nil {
		err = ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.held && slices.ContainsFunc(requests, (*request).changes) {
		err = fmt.Errorf("dataplane at %s: %w: %w", c.socket, kvscheduler.ErrDown, errHeld)
	}
	return s, err
}

// Ping waits until the dataplane has answered all earlier requests.
func (c *Client) Ping(ctx context.Context) error {
	return c.exchangeAll(ctx, []*request{newPing()})
}

// exchange sends the requests over the present connection, see session.exchange.
func (c *Client) exchange(ctx context.Context, requests ...*request) {
	if len(requests) == 0 {
		return
	}
	s, err := c.admit(ctx, requests)
	if err != nil {
		for _, r := range requests {
			r.done = make(chan struct{})
			r.finish(fmt.Errorf("%w: %w", errUnsent, err))
		}
		return
	}
	s.exchange(ctx, c.options.Limit, requests)
	for _, r := range requests {
		if r.err != nil && s.lost() != nil {
			r.err = fmt.Errorf("%w: %w", kvscheduler.ErrDown, r.err)
		}
	}
}

func (c *Client) current() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil, fmt.Errorf("dataplane at %s: %w: %w", c.socket, kvscheduler.ErrDown, c.reason)
	}
	if err := c.session.lost(); err != nil {
		return c.session, fmt.Errorf("dataplane at %s: %w: %w", c.socket, kvscheduler.ErrDown, err)
	}
	return c.session, nil
}

func (c *Client) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Limit)
	defer cancel()
	s, err := dial(ctx, c.socket)
	if err != nil {
		return err
	}
	version, err := s.version(ctx, c.options.Limit)
	if err == nil {
		s.facts = factsOf(version)
		err = s.check(version, neededBy(version))
	}
	if err == nil {
		err = s.watchInterfaces(ctx, c.options.Limit, c.options.Disturbed)
	}
	if err == nil {
		// An agent that was killed may not have moved its queues yet.
		err = c.options.spreadQueues(ctx, version, func(ctx context.Context, requests []*request) error {
			s.exchange(ctx, c.options.Limit, requests)
			return firstFault(requests)
		})
	}
	if err != nil {
		s.close()
		return err
	}
	if c.options.CountMatches {
		if err := s.countMatches(ctx, c.options.Limit); err != nil {
			c.options.Logger.Warn("packets are not counted by rule of network policies", "err", err)
		}
	}
	if err := s.pruneCaptures(ctx, &c.options); err != nil {
		c.options.Logger.Warn("packet captures of an earlier agent not removed", "err", err)
	}
	c.mu.Lock()
	c.held = c.options.Hold && c.version != "" // the first connection has no earlier state
	c.session = s
	c.version = version
	c.reason = nil
	c.mu.Unlock()
	c.options.Logger.Info("dataplane connected", "socket", c.socket, "version", version, "messages", len(s.ids))
	if who := exposure(c.socket); who != "" {
		c.options.Logger.Warn("dataplane socket is open to others: restrict its directory to root", "socket", c.socket,
			"openTo", who)
	}
	c.options.Connected(version)
	return nil
}

func (s *session) version(ctx context.Context, limit time.Duration) (string, error) {
	reply := &vpe.ShowVersionReply{}
	r := ask("show_version", &vpe.ShowVersion{}, reply)
	s.exchange(ctx, limit, []*request{r})
	if err := r.fault(); err != nil {
		return "", err
	}
	return reply.Program + " " + reply.Version, nil
}

// A standby takes over within milliseconds when the dataplane ends, so attempts to connect are redialSoon apart for the
// time urgency after the end of a connection.
const (
	redialSoon = 5 * time.Millisecond
	urgency    = 2 * time.Second
)

// reconnect tries to connect once, and waits after a failure.
func (c *Client) reconnect(ctx context.Context) {
	err := c.connect(ctx)
	if err == nil {
		return
	}
	c.mu.Lock()
	news := c.reason == nil || c.reason.Error() != err.Error()
	c.reason = err
	urgent := c.urgent
	c.mu.Unlock()
	if news && ctx.Err() == nil {
		c.options.Logger.Warn("dataplane not connected", "socket", c.socket, "err", err)
		c.options.NotConnected(err)
	}
	pause := c.options.Redial
	if time.Now().Before(urgent) {
		pause = min(pause, redialSoon)
	}
	if missing := new(MissingMessages); errors.As(err, &missing) {
		pause = max(pause, c.options.Probe) // the dataplane gets the messages by a restart only
	}
	_ = retry.Pause(ctx, pause)
}

// watch returns when the session or ctx ends; dead reports the end of the session.
func (c *Client) watch(ctx context.Context, s *session, tick <-chan time.Time) (dead bool) {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.ended:
			return true
		case <-tick:
		}
		probe := newPing()
		s.exchange(ctx, c.options.Limit, []*request{probe})
		if probe.err != nil && ctx.Err() == nil {
			s.end(fmt.Errorf("probe: %w", probe.err))
			return true
		}
	}
}

func (c *Client) drop(s *session) {
	s.close()
	c.mu.Lock()
	c.session = nil
	c.reason = s.lost()
	c.urgent = time.Now().Add(urgency)
	c.mu.Unlock()
	c.options.Logger.Warn("dataplane lost", "socket", c.socket, "err", s.lost())
	c.options.Lost(s.lost())
}

func (o *Options) defaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Limit = cmp.Or(o.Limit, 5*time.Second)
	o.Probe = cmp.Or(o.Probe, time.Second)
	o.Redial = cmp.Or(o.Redial, 100*time.Millisecond)
	o.Rings = o.Rings.withDefaults()
	o.VethsPerThread = cmp.Or(o.VethsPerThread, MaxVethsPerThread)
	o.Sockets = cmp.Or(o.Sockets, "/run/weft/memif")
	if o.Disturbed == nil {
		o.Disturbed = func(Index) {}
	}
	if o.NodeLink == nil {
		o.NodeLink = func(string) bool { return false }
	}
	if o.Connected == nil {
		o.Connected = func(string) {}
	}
	if o.NotConnected == nil {
		o.NotConnected = func(error) {}
	}
	if o.Lost == nil {
		o.Lost = func(error) {}
	}
}

// exposure names the users besides root that may connect to the API socket. They could configure the dataplane and read
// its secrets. It returns "" if only root can, or if that is unknown.
func exposure(socket string) string {
	info, err := os.Stat(socket)
	if err != nil {
		return ""
	}
	who := class(info, 0o020, 0o002)
	for dir := filepath.Dir(socket); who != 0; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return ""
		}
		who &= searchers(info)
		if dir == filepath.Dir(dir) {
			break
		}
	}
	switch {
	case who&0o007 != 0:
		return "every user"
	case who != 0:
		return "its group"
	}
	return ""
}

func searchers(info fs.FileInfo) fs.FileMode {
	who := class(info, 0o010, 0o001)
	if who&0o007 != 0 {
		who |= 0o070 // members of the socket's group can be "others" of a directory with another group
	}
	return who
}

// class returns the classes of users, 0o070 and 0o007, with one of the permissions. Group 0 counts as root.
func class(info fs.FileInfo, group, other fs.FileMode) (who fs.FileMode) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if info.Mode()&group != 0 && ok && st.Gid != 0 {
		who |= 0o070
	}
	if info.Mode()&other != 0 {
		who |= 0o007
	}
	return who
}
