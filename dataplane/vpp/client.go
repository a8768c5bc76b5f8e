// Package vpp realises the desired values of a VPP-like dataplane over its binary API.
//
// A Client owns the connection; Register ties the kinds of package wire to it. Messages are those of govpp's bindings.
// They are matched to requests by their context, so that an answer that comes after its request's deadline is dropped
// and never taken for another's (govpp's own streams hand channels with late answers on to the next stream).
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
	"strings"
	"sync"
	"syscall"
	"time"

	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vpe"

	"github.com/weftnet/weft/kvscheduler"
)

// Options tune a Client. The zero value is usable. The callbacks are called in order, from Connect and from Run.
type Options struct {
	Logger  *slog.Logger  // default: discard
	Limit   time.Duration // of the wait for one answer; 5 s
	Probe   time.Duration // between two probes of the dataplane's health; 1 s
	Redial  time.Duration // between two attempts to connect; 100 ms
	Sockets string        // directory below which all memif sockets are ours; /run/weft/memif
	Rings   Rings         // of interfaces of type af_packet
	// VethsPerThread is the number of receive queues of type af_packet that one thread of VPP is given; default MaxVethsPerThread,
	// and less than 0 is any number. weft-vswitch has no limit.
	VethsPerThread int
	// NodeLink says of the name of an interface of type af_packet that the node itself needs it: it gets room before pods'.
	NodeLink     func(name string) bool
	GracePeriods *GracePeriods        // expedited for interfaces of type af_packet; nil: never
	StatsSocket  string               // of the stats segment; default: StatsSocket of the API socket
	RunDir       string               // a directory that only root can write to; os.TempDir()
	Connected    func(version string) // a connection is usable: what is there must be read back
	NotConnected func(error)          // Run could not connect, for another reason than the time before
	Hold         bool                 // after a reconnection changes are refused until Hold's function is called: what is there was not compared yet
	Lost         func(error)          // the connection broke; operations under way have an unknown outcome
	Disturbed    func(Index)          // an interface was deleted or set down; called by the reader of answers, so it must not wait
}

// Client is the connection to a dataplane. It survives the dataplane's restarts as long as Run runs. Its methods may be
// called from anywhere.
type Client struct {
	socket  string
	options Options
	stats   *stats

	mu      sync.Mutex
	session *session  // nil: not connected
	version string    // of the dataplane connected last
	reason  error     // why there is no session
	urgent  time.Time // until when attempts to connect are at short intervals
	held    bool      // changes are refused
}

// New makes a client of the dataplane at socket, for Run to connect.
func New(socket string, o Options) *Client {
	o.defaults()
	if o.StatsSocket == "" {
		o.StatsSocket = StatsSocket(socket)
	}
	return &Client{socket: socket, options: o, stats: &stats{socket: o.StatsSocket, dir: o.RunDir}, reason: errors.New("never connected")}
}

// Connect connects to the dataplane's socket, trying until ctx ends. It refuses a dataplane that lacks a needed message at
// once, with a *MissingMessages. Run keeps the connection; Close ends it.
func Connect(ctx context.Context, socket string, o Options) (*Client, error) {
	c := New(socket, o)
	for {
		err := c.connect(ctx)
		if err == nil {
			return c, nil
		}
		if missing := new(MissingMessages); errors.As(err, &missing) {
			return nil, fmt.Errorf("dataplane at %s: %w", socket, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(c.options.Redial):
		}
	}
}

// Run connects to the dataplane where Connect has not, probes it and connects anew when the connection breaks, until ctx
// ends. A dataplane that lacks a needed message stays unconnected until it is restarted with the plugin.
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
	c.session, c.reason = nil, errClosed
	c.mu.Unlock()
	if s != nil {
		s.close()
	}
	c.stats.close()
	return nil
}

// StatsSocket is the default path of the stats socket for an API socket: beside it, with stats.sock for api.sock.
func StatsSocket(socket string) string {
	if beginning, ok := strings.CutSuffix(socket, "api.sock"); ok {
		return beginning + "stats.sock"
	}
	return socket + ".stats"
}

// Version is what the dataplane called itself: program and version.
func (c *Client) Version() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// Health is nil while the dataplane is connected, else why it is not. It wraps kvscheduler.ErrDown.
func (c *Client) Health() error {
	_, err := c.current()
	return err
}

// Hold gives the function that lets changes pass over the present connection, once what is there was read back: see
// Options.Hold. It returns false if that connection is not the present one any more.
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
var errHeld = errors.New("connected again, and not compared with what is desired yet")

// admit is the session for the requests, or why they cannot be sent.
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

// Ping returns when the dataplane has answered, which it does behind all that it was asked before.
func (c *Client) Ping(ctx context.Context) error {
	ping := ask("control_ping", &memclnt.ControlPing{}, &memclnt.ControlPingReply{})
	c.exchange(ctx, ping)
	return ping.fault()
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

// current is the session that lives, or why there is none.
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

// connect makes a session that has all messages.
func (c *Client) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Limit)
	defer cancel()
	s, err := dial(ctx, c.socket)
	if err != nil {
		return err
	}
	version, err := s.ask(ctx, c.options.Limit)
	if err == nil {
		s.facts = factsOf(version)
		err = s.check(version, neededBy(version))
	}
	if err == nil {
		err = s.watchInterfaces(ctx, c.options.Limit, c.options.Disturbed)
	}
	if err == nil {
		// An agent that was killed may have left queues where VPP put them.
		err = c.options.spreadQueues(ctx, version, func(ctx context.Context, requests []*request) error {
			s.exchange(ctx, c.options.Limit, requests)
			return firstFault(requests)
		})
	}
	if err != nil {
		s.close()
		return err
	}
	c.mu.Lock()
	c.held = c.options.Hold && c.version != "" // with the first connection there is nothing that could be out of date
	c.session, c.version, c.reason = s, version, nil
	c.mu.Unlock()
	c.options.Logger.Info("dataplane connected", "socket", c.socket, "version", version, "messages", len(s.ids))
	if who := exposure(c.socket); who != "" {
		c.options.Logger.Warn("dataplane socket is open to others: restrict its directory to root", "socket", c.socket, "openTo", who)
	}
	c.options.Connected(version)
	return nil
}

// ask asks for the version.
func (s *session) ask(ctx context.Context, limit time.Duration) (string, error) {
	reply := &vpe.ShowVersionReply{}
	r := ask("show_version", &vpe.ShowVersion{}, reply)
	s.exchange(ctx, limit, []*request{r})
	if err := r.fault(); err != nil {
		return "", err
	}
	return reply.Program + " " + reply.Version, nil
}

// A standby takes over within milliseconds when the dataplane ends, so attempts to connect are redialSoon apart for the time urgency
// after the end of a connection.
const (
	redialSoon = 5 * time.Millisecond
	urgency    = 2 * time.Second
)

// reconnect tries once and then waits.
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
		pause = max(pause, c.options.Probe) // only a restart of the dataplane changes what it lacks
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// watch returns when the session is over or ctx ends; dead says that it is over.
func (c *Client) watch(ctx context.Context, s *session, tick <-chan time.Time) (dead bool) {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.ended:
			return true
		case <-tick:
		}
		probe := ask("control_ping", &memclnt.ControlPing{}, &memclnt.ControlPingReply{})
		s.exchange(ctx, c.options.Limit, []*request{probe})
		if probe.err != nil && ctx.Err() == nil {
			s.end(fmt.Errorf("probe: %w", probe.err))
			return true
		}
	}
}

// drop takes a session that is over out of use.
func (c *Client) drop(s *session) {
	s.close()
	c.mu.Lock()
	c.session, c.reason, c.urgent = nil, s.lost(), time.Now().Add(urgency)
	c.mu.Unlock()
	c.options.Logger.Warn("dataplane lost", "socket", c.socket, "err", s.lost())
	c.options.Lost(s.lost())
}

func (o *Options) defaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		value *time.Duration
		usual time.Duration
	}{{&o.Limit, 5 * time.Second}, {&o.Probe, time.Second}, {&o.Redial, 100 * time.Millisecond}} {
		if *d.value <= 0 {
			*d.value = d.usual
		}
	}
	o.Rings, o.VethsPerThread = o.Rings.withDefaults(), cmp.Or(o.VethsPerThread, MaxVethsPerThread)
	if o.Sockets == "" {
		o.Sockets = "/run/weft/memif"
	}
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

// exposure says which users besides root may connect to the API socket. They could configure the dataplane and read its secrets. It
// returns "" if only root can, or if that cannot be found out.
func exposure(socket string) string {
	info, err := os.Stat(socket)
	if err != nil {
		return ""
	}
	who := writers(info)
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

// writers are the classes of users, 0o070 and 0o007, that may connect to a socket. A group of root's own is root.
func writers(info fs.FileInfo) fs.FileMode { return class(info, 0o020, 0o002) }

// searchers are the classes that may pass a directory.
func searchers(info fs.FileInfo) fs.FileMode {
	who := class(info, 0o010, 0o001)
	if who&0o007 != 0 {
		who |= 0o070 // a group that is not the directory's is among the others
	}
	return who
}

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
