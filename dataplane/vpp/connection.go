package vpp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.fd.io/govpp/binapi/vpe"

	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/kvscheduler"
)

// connection is the connection to a dataplane, over one session after the other:
//
//	               connect                     drop
//	not connected ---------> held or usable ---------> not connected
//	                              |  resume of Hold
//	                              +--------> usable
type connection struct {
	socket  string
	options Options

	mu      sync.Mutex
	session *session  // nil: not connected
	version string    // of the last dataplane
	reason  error     // why there is no session
	urgent  time.Time // end of short redial intervals
	held    bool      // changes are refused
}

// Run connects to the dataplane, probes it, and reconnects after the connection breaks, until ctx ends. It does not use
// a dataplane that lacks a needed message.
func (c *connection) Run(ctx context.Context) error {
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

// close ends the connection for good.
func (c *connection) close() {
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.reason = errClosed
	c.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// Version returns the program and version of the dataplane.
func (c *connection) Version() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// Health returns nil while the dataplane is connected, else the reason, which wraps kvscheduler.ErrDown.
func (c *connection) Health() error {
	_, err := c.current()
	return err
}

// Hold returns the function that admits changes over the current connection: call it after reading the dataplane back,
// see Options.Hold. That function returns false if the connection has been replaced.
func (c *connection) Hold() (resume func() bool) {
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

var errClosed = errors.New("connection closed by us")

// errHeld refuses changes of a dataplane that may be a new process.
var errHeld = errors.New("reconnected, and not yet compared with the desired state")

// admit returns the session for the requests, or the reason why they cannot be sent.
func (c *connection) admit(ctx context.Context, requests []*request) (*session, error) {
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
func (c *connection) Ping(ctx context.Context) error {
	return c.exchangeAll(ctx, []*request{newPing()})
}

// exchange sends the requests over the present connection, see session.exchange.
func (c *connection) exchange(ctx context.Context, requests ...*request) {
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

// exchangeAll sends the requests and returns the first error.
func (c *connection) exchangeAll(ctx context.Context, requests []*request) error {
	c.exchange(ctx, requests...)
	return firstFault(requests)
}

func (c *connection) current() (*session, error) {
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

func (c *connection) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Limit)
	defer cancel()
	s, err := dial(ctx, c.socket)
	if err != nil {
		return err
	}
	exchange := exchangeAll(func(ctx context.Context, requests []*request) error {
		s.exchange(ctx, c.options.Limit, requests)
		return firstFault(requests)
	})
	version, err := versionOf(ctx, exchange)
	if err == nil {
		s.facts = factsOf(version)
		err = s.ids.check(version, neededBy(version))
	}
	if err == nil {
		err = s.watchInterfaces(ctx, c.options.Limit, c.options.Events.Disturbed)
	}
	if err == nil {
		// An agent that was killed may not have moved its queues yet.
		err = c.options.spreadQueues(ctx, version, exchange)
	}
	if err != nil {
		s.close()
		return err
	}
	if c.options.CountMatches {
		if err := countMatches(ctx, exchange); err != nil {
			c.options.Logger.Warn("packets are not counted by rule of network policies", "err", err)
		}
	}
	if err := c.options.pruneCaptures(ctx, exchange); err != nil {
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
	c.options.Events.Connected(version)
	return nil
}

func versionOf(ctx context.Context, exchange exchangeAll) (string, error) {
	reply := &vpe.ShowVersionReply{}
	if err := exchange(ctx, []*request{ask("show_version", &vpe.ShowVersion{}, reply)}); err != nil {
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
func (c *connection) reconnect(ctx context.Context) {
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
		c.options.Events.NotConnected(err)
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
func (c *connection) watch(ctx context.Context, s *session, tick <-chan time.Time) (dead bool) {
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

func (c *connection) drop(s *session) {
	s.close()
	c.mu.Lock()
	c.session = nil
	c.reason = s.lost()
	c.urgent = time.Now().Add(urgency)
	c.mu.Unlock()
	c.options.Logger.Warn("dataplane lost", "socket", c.socket, "err", s.lost())
	c.options.Events.Lost(s.lost())
}
