// Package southbound keeps the connection to the dataplane, starts the embedded dataplane where none answers, and reads
// the counters.
package southbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/ipnet/desired"
)

// Dataplane is the connection to the dataplane. It starts the embedded dataplane if no process serves the API socket.
type Dataplane struct {
	Client   *vpp.Client
	embedded *embedded // nil: another component runs the dataplane
	health   *health.Conditions
	log      *slog.Logger

	Replay      func(context.Context, *Connection) error // of the desired state: the dataplane may be a new process
	connected   chan struct{}                            // closed by the first connection
	reconnected chan struct{}                            // holds a token after a reconnection
	lost        chan struct{}                            // holds a token when the connection broke
	up          atomic.Bool                              // there is a connection

	mu      sync.Mutex
	current *Connection // the last one that was made; nil before the first

	OnReconnect func()                   // called for each connection but the first
	OnReplay    func(took time.Duration) // called after each replay
	OnDisturbed func(vpp.Index)          // called for each interface that was deleted or set down
	// InTheWay is vpp.Options.InTheWay.
	InTheWay func(namespace, name string) error
}

// Connection is one connection to the dataplane. The process may be another one than on the previous connection.
type Connection struct {
	Version string
	Ended   chan struct{} // closed when it broke
	LostAt  time.Time     // when it broke; to be read once ended is closed
}

// IsLost reports whether the connection broke.
func (c *Connection) IsLost() bool {
	select {
	case <-c.Ended:
		return true
	default:
		return false
	}
}

// New prepares the connection. Run makes it.
func New(c config.Config, log *slog.Logger, conditions *health.Conditions) *Dataplane {
	s := &Dataplane{
		health:      conditions,
		log:         log,
		connected:   make(chan struct{}),
		reconnected: make(chan struct{}, 1),
		lost:        make(chan struct{}, 1),
		OnReconnect: func() {}, OnReplay: func(time.Duration) {}, OnDisturbed: func(vpp.Index) {},
		InTheWay: func(string, string) error { return nil },
	}
	if c.Dataplane.Type == config.Embedded && !c.Dataplane.External {
		s.embedded = &embedded{config: c.Dataplane, log: log}
	}
	s.Client = vpp.New(c.Dataplane.Socket, vpp.Options{
		Sockets: c.Devices.Memif.Directory,
		AFPacket: vpp.AFPacketOptions{
			Rings:        c.Dataplane.Rings(),
			PerThread:    cmp.Or(c.Dataplane.VethsPerThread, -1),
			NodeLink:     desired.IsNodes,
			GracePeriods: gracePeriods(c, log),
		},
		StatsSocket:  c.Dataplane.StatsSocket,
		RunDir:       filepath.Dir(c.Socket),
		CountMatches: c.Kubernetes.EnforcePolicies,
		Logger:       log.With("component", "dataplane"),
		Hold:         true,
		Events: vpp.Events{
			Connected:    s.onConnected,
			NotConnected: func(err error) { s.health.Set(health.Dataplane, false, "not connected: "+err.Error()) },
			Lost:         s.onLost,
			Disturbed:    func(i vpp.Index) { s.OnDisturbed(i) },
		},
		InTheWay: func(namespace, name string) error { return s.InTheWay(namespace, name) },
	})
	return s
}

// gracePeriods returns nil if RCU grace periods are not expedited by configuration, or cannot be. weft-vswitch does not
// wait for them.
func gracePeriods(c config.Config, log *slog.Logger) *vpp.GracePeriods {
	marker := filepath.Join(filepath.Dir(c.Socket), "rcu-expedited")
	if !c.Dataplane.ExpediteRCU || c.Dataplane.Type == config.Embedded {
		if err := vpp.RestoreGracePeriods(vpp.RCUExpedited, marker); err != nil {
			log.Warn("RCU grace periods stay expedited", "err", err)
		}
		return nil
	}
	err := MakeWritable(filepath.Dir(filepath.Dir(vpp.RCUExpedited)))
	if err == nil {
		var g *vpp.GracePeriods
		if g, err = vpp.NewGracePeriods(vpp.RCUExpedited, marker); err == nil {
			return g
		}
	}
	log.Warn("RCU grace periods are not expedited: each veth takes longer, on VPP some 40 ms", "err", err)
	return nil
}

// Run keeps the dataplane connected, and the embedded one running, until ctx ends.
func (s *Dataplane) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Client.Run(ctx) })
	group.Go(func() error { return s.replays(ctx) })
	if s.embedded != nil {
		group.Go(func() error { return s.supervise(ctx) })
	}
	err := group.Wait()
	return errors.Join(err, s.Client.Close())
}

// lookAgain is the poll interval without a connection: a dataplane may die after it answered and before it is
// connected.
const lookAgain = time.Second

// supervise starts the embedded dataplane if no process answers: at first, after each lost connection, and in each poll
// without a connection.
func (s *Dataplane) supervise(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		if err := s.ensure(ctx); err != nil {
			return err
		}
		if err := s.awaitNeed(ctx, tick.C); err != nil {
			return err
		}
	}
}

// awaitNeed returns when the dataplane must be checked.
func (s *Dataplane) awaitNeed(ctx context.Context, tick <-chan time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.lost:
			return nil
		case <-tick:
			if !s.up.Load() {
				return nil
			}
		}
	}
}

// ensure retries, with growing pauses, until a dataplane answers.
func (s *Dataplane) ensure(ctx context.Context) error {
	try := func() (struct{}, error) {
		err := s.embedded.ensure(ctx)
		if err != nil && ctx.Err() == nil {
			s.health.Set(health.Dataplane, false, err.Error())
			s.log.Error("dataplane not started, retrying", "err", err)
		}
		return struct{}{}, err
	}
	_, err := retry.Until(ctx, 200*time.Millisecond, 30*time.Second, try)
	return err
}

// Await returns after the first connection.
func (s *Dataplane) Await(ctx context.Context) error {
	select {
	case <-s.connected:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replays applies the desired state after each reconnection. The dataplane is healthy only after that; until then ADDs
// get "try again later".
func (s *Dataplane) replays(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.reconnected:
			c := s.Connection()
			began := time.Now()
			err := s.Replay(ctx, c)
			switch took := time.Since(began); {
			case ctx.Err() != nil:
			case c.IsLost():
				s.log.Warn("dataplane lost during its replay", "took", took)
			case err != nil:
				s.log.Error("replay incomplete, repairing", "took", took, "err", err)
			default:
				s.log.Info("dataplane replayed", "took", took)
			}
			s.OnReplay(time.Since(began))
			s.replayed(c)
		}
	}
}

// IsConnected reports whether there is a connection.
func (s *Dataplane) IsConnected() bool { return s.up.Load() }

// Ping returns nil if the dataplane answers.
func (s *Dataplane) Ping(ctx context.Context) error { return s.Client.Ping(ctx) }

// Connection returns the last connection.
func (s *Dataplane) Connection() *Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// replayed makes the dataplane ready, unless the connection was lost or replaced meanwhile.
func (s *Dataplane) replayed(c *Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == c && !c.IsLost() {
		s.health.Set(health.Dataplane, true, c.Version)
	}
}

func (s *Dataplane) onConnected(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.current == nil
	s.current = &Connection{Version: version, Ended: make(chan struct{})}
	s.up.Store(true)
	if first {
		s.health.Set(health.Dataplane, true, version)
		close(s.connected) // the first resync waits for it, and reads everything back
		return
	}
	s.OnReconnect()
	s.health.Set(health.Dataplane, false, "connected again, replaying what is desired")
	select {
	case s.reconnected <- struct{}{}:
	default: // one replay for both connections
	}
}

func (s *Dataplane) onLost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up.Store(false)
	s.current.LostAt = time.Now()
	close(s.current.Ended)
	s.health.Set(health.Dataplane, false, "connection lost: "+err.Error())
	select {
	case s.lost <- struct{}{}:
	default: // there is a token
	}
}

// embedded finds or starts the weft-vswitch of this node. weft-vswitch is a process in a session of its own that logs
// to a file, so that it continues to forward when the agent stops, is killed, or is upgraded. While one answers, none
// is started.
type embedded struct {
	config config.Dataplane
	log    *slog.Logger
	known  bool // it answered at the last check
}

// startTimeout limits the time from the start of weft-vswitch to the first answer of its API, which takes a few
// milliseconds.
const startTimeout = 10 * time.Second

// ensure returns once a dataplane answers on the API socket.
func (e *embedded) ensure(ctx context.Context) error {
	if Answers(e.config.Socket) {
		if !e.known {
			e.log.Info("dataplane found running", "socket", e.config.Socket)
		}
		e.known = true
		return nil
	}
	e.known = false
	program, err := e.program()
	if err != nil {
		return err
	}
	exited, pid, err := e.start(program)
	if err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	e.log.Info("dataplane started", "program", program, "pid", pid, "log", e.config.Log)
	err = e.await(ctx, exited)
	e.known = err == nil
	return err
}

func (e *embedded) program() (string, error) {
	if e.config.Program != "" {
		return e.config.Program, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "weft-vswitch")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	program, err := exec.LookPath("weft-vswitch")
	if err != nil {
		return "", errors.New(
			"weft-vswitch is neither beside weft-agent nor in PATH: set dataplane.program, or dataplane.type to vpp")
	}
	return program, nil
}

// start starts a weft-vswitch that outlives the agent. The channel is closed when it ends.
func (e *embedded) start(program string) (exited <-chan struct{}, pid int, err error) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(e.config.Log), 0o755),
		os.MkdirAll(filepath.Dir(e.config.Socket), 0o700)); err != nil {
		return nil, 0, err
	}
	out, err := os.OpenFile(e.config.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer out.Close()
	cmd := exec.Command(program, "--api-socket", e.config.Socket, "--stats-socket", e.config.StatsSocket) //nolint:noctx // it outlives the agent
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := cmd.Wait()
		e.log.Warn("dataplane ended", "pid", cmd.Process.Pid, "err", err)
	}()
	return done, cmd.Process.Pid, nil
}

func (e *embedded) await(ctx context.Context, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !Answers(e.config.Socket) {
		select {
		case <-tick.C:
		case <-exited:
			return fmt.Errorf("weft-vswitch ended before it answered on %s; see %s", e.config.Socket, e.config.Log)
		case <-ctx.Done():
			return fmt.Errorf("weft-vswitch does not answer on %s: %w; see %s", e.config.Socket, context.Cause(ctx),
				e.config.Log)
		}
	}
	return nil
}

// Answers reports whether a process accepts connections at a unix socket.
func Answers(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}
