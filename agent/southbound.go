package agent

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

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// southbound is the connection to the dataplane and, where that is the embedded one, what keeps it alive.
type southbound struct {
	client   *vpp.Client
	embedded *embedded // nil: another component runs the dataplane
	health   *health.Conditions
	log      *slog.Logger

	replay    func(context.Context, *connection) error // the dataplane may be a new process: read it back and repair it
	connected chan struct{}                            // closed by the first connection
	again     chan struct{}                            // holds a token when a connection was made anew
	lost      chan struct{}                            // holds a token when the connection broke
	up        atomic.Bool                              // there is a connection

	mu      sync.Mutex
	current *connection // the last one that was made; nil before the first

	onReconnect func()                   // told of each connection but the first
	onReplay    func(took time.Duration) // told of each replay
	onDisturbed func(vpp.Index)          // told of each interface that was deleted or set down
}

// connection is one connection to the dataplane, which may be another process than that of the connection before.
type connection struct {
	version string
	ended   chan struct{} // closed when it broke
	lostAt  time.Time     // when it broke; to be read once ended is closed
}

// isLost reports whether the connection broke.
func (c *connection) isLost() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func newSouthbound(c config.Config, log *slog.Logger, conditions *health.Conditions) *southbound {
	s := &southbound{
		health: conditions, log: log, connected: make(chan struct{}), again: make(chan struct{}, 1), lost: make(chan struct{}, 1),
		onReconnect: func() {}, onReplay: func(time.Duration) {}, onDisturbed: func(vpp.Index) {},
	}
	if c.Dataplane.Type == config.Embedded && !c.Dataplane.External {
		s.embedded = &embedded{config: c.Dataplane, log: log}
	}
	s.client = vpp.New(c.Dataplane.Socket, vpp.Options{
		Sockets:        c.Devices.Memif.Directory,
		Rings:          c.Dataplane.Rings(),
		VethsPerThread: cmp.Or(c.Dataplane.VethsPerThread, -1),
		NodeLink:       desired.IsNodes,
		GracePeriods:   gracePeriods(c, log),
		StatsSocket:    c.Dataplane.StatsSocket,
		RunDir:         filepath.Dir(c.Socket),
		Logger:         log.With("room", "dataplane"),
		Hold:           true,
		Connected:      s.onConnected,
		NotConnected:   func(err error) { s.health.Set(health.Dataplane, false, "not connected: "+err.Error()) },
		Lost:           s.onLost,
		Disturbed:      func(i vpp.Index) { s.onDisturbed(i) },
	})
	return s
}

// gracePeriods returns nil if RCU grace periods are not to be expedited, or cannot be. weft-vswitch waits for none.
func gracePeriods(c config.Config, log *slog.Logger) *vpp.GracePeriods {
	marker := filepath.Join(filepath.Dir(c.Socket), "rcu-expedited")
	if !c.Dataplane.ExpediteRCU || c.Dataplane.Type == config.Embedded {
		if err := vpp.RestoreGracePeriods(vpp.RCUExpedited, marker); err != nil {
			log.Warn("RCU grace periods stay expedited", "err", err)
		}
		return nil
	}
	err := openSettings(filepath.Dir(filepath.Dir(vpp.RCUExpedited)))
	if err == nil {
		var g *vpp.GracePeriods
		if g, err = vpp.NewGracePeriods(vpp.RCUExpedited, marker); err == nil {
			return g
		}
	}
	log.Warn("RCU grace periods are not expedited: each veth takes longer, on VPP some 40 ms", "err", err)
	return nil
}

// run keeps the dataplane connected, and the embedded one running, until ctx ends.
func (s *southbound) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.client.Run(ctx) })
	group.Go(func() error { return s.replays(ctx) })
	if s.embedded != nil {
		group.Go(func() error { return s.supervise(ctx) })
	}
	err := group.Wait()
	return errors.Join(err, s.client.Close())
}

// lookAgain is the time between two looks for a dataplane while there is no connection: one may have answered and died
// before there was any that could break.
const lookAgain = time.Second

// supervise starts the embedded dataplane where none answers: now, whenever the connection broke, and for as long as
// there is none.
func (s *southbound) supervise(ctx context.Context) error {
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

// awaitNeed returns when it is time to look for a dataplane.
func (s *southbound) awaitNeed(ctx context.Context, tick <-chan time.Time) error {
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

// ensure tries until a dataplane answers; one that cannot be started must not become a busy loop.
func (s *southbound) ensure(ctx context.Context) error {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.MaxInterval = 200*time.Millisecond, 30*time.Second
	try := func() (struct{}, error) {
		err := s.embedded.ensure(ctx)
		if err != nil && ctx.Err() == nil {
			s.health.Set(health.Dataplane, false, err.Error())
			s.log.Error("dataplane cannot be started, trying again", "err", err)
		}
		return struct{}{}, err
	}
	_, err := backoff.Retry(ctx, try, backoff.WithBackOff(delay), backoff.WithMaxElapsedTime(0))
	return err
}

// await returns once there was a connection.
func (s *southbound) await(ctx context.Context) error {
	select {
	case <-s.connected:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replays brings a dataplane that was connected anew to what is desired, and only then calls it well: until then new pods
// are told to come again.
func (s *southbound) replays(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.again:
			c, began := s.connection(), time.Now()
			err := s.replay(ctx, c)
			switch took := time.Since(began); {
			case ctx.Err() != nil:
			case c.isLost():
				s.log.Warn("dataplane lost during its replay", "took", took)
			case err != nil:
				s.log.Error("replay left something to repair", "took", took, "err", err)
			default:
				s.log.Info("dataplane replayed", "took", took)
			}
			s.onReplay(time.Since(began))
			s.replayed(c)
		}
	}
}

// connection is the last connection that was made.
func (s *southbound) connection() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// replayed makes the dataplane ready, unless the connection was lost or replaced meanwhile.
func (s *southbound) replayed(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == c && !c.isLost() {
		s.health.Set(health.Dataplane, true, c.version)
	}
}

func (s *southbound) onConnected(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.current == nil
	s.current = &connection{version: version, ended: make(chan struct{})}
	s.up.Store(true)
	if first {
		s.health.Set(health.Dataplane, true, version)
		close(s.connected) // the first resync is waiting for it, and reads everything back anyway
		return
	}
	s.onReconnect()
	s.health.Set(health.Dataplane, false, "connected again, replaying what is desired")
	select {
	case s.again <- struct{}{}:
	default: // one replay for both connections
	}
}

func (s *southbound) onLost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up.Store(false)
	s.current.lostAt = time.Now()
	close(s.current.ended)
	s.health.Set(health.Dataplane, false, "connection lost: "+err.Error())
	select {
	case s.lost <- struct{}{}:
	default: // a token is there already
	}
}

// embedded finds or starts the weft-vswitch of this node. It is a process of its own, in its own session and with its
// output in a file, so that it goes on forwarding when the agent stops, is killed, or is upgraded; one that answers
// is never started again.
type embedded struct {
	config config.Dataplane
	log    *slog.Logger
	known  bool // it answered when it was looked for last
}

// startTimeout is how long a new weft-vswitch may take until its API answers; it needs a few milliseconds.
const startTimeout = 10 * time.Second

// ensure returns once a dataplane answers on the API socket.
func (e *embedded) ensure(ctx context.Context) error {
	if answers(e.config.Socket) {
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
		return "", errors.New("weft-vswitch is neither beside weft-agent nor in PATH: set dataplane.program, or dataplane.type to vpp")
	}
	return program, nil
}

// start leaves a running weft-vswitch behind. The channel is closed when it ends, as long as this agent lives.
func (e *embedded) start(program string) (exited <-chan struct{}, pid int, err error) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(e.config.Log), 0o755), os.MkdirAll(filepath.Dir(e.config.Socket), 0o700)); err != nil {
		return nil, 0, err
	}
	out, err := os.OpenFile(e.config.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer out.Close()
	cmd := exec.Command(program, "--api-socket", e.config.Socket, "--stats-socket", e.config.StatsSocket) //nolint:noctx // it is to outlive us
	cmd.Stdout, cmd.Stderr = out, out
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
	for !answers(e.config.Socket) {
		select {
		case <-tick.C:
		case <-exited:
			return fmt.Errorf("weft-vswitch ended before it answered on %s; see %s", e.config.Socket, e.config.Log)
		case <-ctx.Done():
			return fmt.Errorf("weft-vswitch does not answer on %s: %w; see %s", e.config.Socket, context.Cause(ctx), e.config.Log)
		}
	}
	return nil
}

func answers(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// linkTypes resolves the configured link types; noTap is why the dataplane cannot create taps, "" if it can. A type that the
// operator chose stays, even where it will be refused.
func linkTypes(c *config.Config, noTap string) mesh.LinkTypes {
	usual := pod.TypeTap
	if noTap != "" {
		usual = pod.TypeVeth
	}
	resolve := func(configured string) string {
		if configured == config.Auto {
			return usual
		}
		return configured
	}
	return mesh.LinkTypes{Pod: resolve(c.PodInterface), Host: resolve(c.HostLinkType), NoTap: noTap}
}

// chooseLinkTypes asks the dataplane whether it can create taps, and has networks use what it can. weft-vswitch needs nothing
// that a node might lack; VPP needs vhost-net. It asks until it gets an answer: a wrong guess would replace the host link.
func (a *Agent) chooseLinkTypes(ctx context.Context) {
	if a.config.Dataplane.Type != config.VPP {
		return
	}
	reason := ""
	noTap, err := backoff.Retry(ctx, func() (string, error) { return a.dataplane.client.WhyNoTap(ctx) },
		backoff.WithBackOff(backoff.NewConstantBackOff(time.Second)), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, _ time.Duration) {
			if err.Error() != reason {
				reason = err.Error()
				a.log.Warn("dataplane did not say whether it can create taps, asking again", "err", err)
			}
		}))
	if err != nil {
		return // the agent ends
	}
	types := linkTypes(&a.config, noTap)
	if noTap != "" {
		a.log.Warn("dataplane cannot create taps", "reason", noTap, "hostLink", types.Host, "podInterface", types.Pod)
	}
	if err := a.network.Host.SetLinkTypes(types); err != nil {
		a.log.Error("link types not changed", "err", err)
	}
}

// maxSegment is the largest packet that veths carry in one piece; 0: the kernel's. weft-vswitch takes what the kernel gives.
func maxSegment(c *config.Config) int {
	if c.Dataplane.Type != config.VPP {
		return 0
	}
	if c.Kubernetes.Mode == config.InCluster && c.Kubernetes.Tunnel != networks.TunnelNone {
		return noSegment
	}
	return c.Dataplane.Rings().MaxSegment()
}

// noSegment has the kernel segment everything itself. VPP's af_packet input does not mark IPv4 for a header checksum, by which
// VPP's segmentation tells IPv4 from IPv6 (25.10 and 26.06, af_packet/node.c and vnet/gso/gso.h): long packets from a veth
// would leave a tunnel with wrong lengths. The value is above the kernel's room for TCP headers, which it subtracts.
const noSegment = 512

// countersAge is how long a reading serves: the dataplane is asked once a second at most, however many clients scrape.
const countersAge = time.Second

// checkCounters is the time between two checks whether the stats segment can be read.
const checkCounters = 15 * time.Second

// counters reads the dataplane's counters for metrics and operators, and keeps the condition that says whether they can be
// read. Pods are served without them.
type counters struct {
	southbound *southbound
	health     *health.Conditions
	log        *slog.Logger

	mu     sync.Mutex
	last   *vpp.Counters
	err    error // of the last reading
	at     time.Time
	warned string // about which error of the stats segment
}

func newCounters(s *southbound, h *health.Conditions, log *slog.Logger) *counters {
	h.Advise(health.Stats)
	return &counters{southbound: s, health: h, log: log}
}

// errNoDataplane is the error while there is no connection; the condition of the dataplane says why.
var errNoDataplane = errors.New("the dataplane is not connected")

// read returns the counters, which are up to a second old.
func (c *counters) read(ctx context.Context) (*vpp.Counters, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < countersAge {
		return c.last, c.err
	}
	c.last, c.err = nil, errNoDataplane
	if c.southbound.up.Load() {
		c.last, c.err = c.southbound.client.Counters(ctx)
		c.judgeLocked(ctx, c.err)
	}
	c.at = time.Now()
	return c.last, c.err
}

// run checks from time to time whether counters can be read, so that the condition is right even if no client reads them.
func (c *counters) run(ctx context.Context) error {
	if err := c.southbound.await(ctx); err != nil {
		return err
	}
	return every(ctx, checkCounters, func() {
		if c.southbound.up.Load() {
			err := c.southbound.client.CheckStats(ctx)
			c.mu.Lock()
			c.judgeLocked(ctx, err)
			c.mu.Unlock()
		}
	})
}

// judgeLocked sets the condition after a reading. A lost connection and a caller that gave up say nothing about it.
func (c *counters) judgeLocked(ctx context.Context, err error) {
	if ctx.Err() != nil || err != nil && !errors.Is(err, vpp.ErrStats) {
		return
	}
	if err != nil && !c.southbound.up.Load() {
		return
	}
	if err == nil {
		if c.warned != "" {
			c.log.Info("counters of the dataplane are read again")
		}
		c.warned = ""
		c.health.Set(health.Stats, true, "counters are read")
		return
	}
	if c.warned != err.Error() {
		c.log.Warn("counters of the dataplane cannot be read; pods are served without them", "err", err)
	}
	c.warned = err.Error()
	c.health.Set(health.Stats, false, "no counters: "+err.Error())
}

// podInterface is an interface of a pod with what passed through it, as the pod sees it: received is what came to the pod.
type podInterface struct {
	at pod.Attachment
	pod.Interface
	vpp.Traffic
	connected *bool // of a memif: whether the pod's program is there
}

// podCounters assigns counters to the interfaces of attachments. What comes from an interface of the dataplane is what its
// pod sent.
func podCounters(attachments []pod.Attachment, c *vpp.Counters) []podInterface {
	var all []podInterface
	for _, at := range attachments {
		for _, in := range at.Interfaces {
			t, ok := c.Interfaces[in.Object]
			if !ok || in.Object == "" {
				continue
			}
			i := podInterface{at: at, Interface: in, Traffic: vpp.Traffic{
				RxPackets: t.TxPackets, RxBytes: t.TxBytes, RxDrops: t.TxDrops,
				TxPackets: t.RxPackets, TxBytes: t.RxBytes, TxDrops: t.RxDrops,
			}}
			if in.Type == pod.TypeMemif {
				i.connected = &t.LinkUp
			}
			all = append(all, i)
		}
	}
	return all
}
