// Package pathmtu measures the MTU of the paths to other nodes, and reports those that are too small for tunnel
// packets.
package pathmtu

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/health"
)

const (
	// look is the period in which the monitor looks for paths that are due.
	look = 2 * time.Second
	// period is the shortest time between two measurements of a path that suffices. It is perPeer for each path if that
	// is more, so that the load of a large cluster is bounded: ten packets a second.
	period  = time.Minute
	perPeer = 100 * time.Millisecond
	// retryPeriod is the time until the next measurement of a path that does not suffice, or was not measured.
	retryPeriod = 15 * time.Second
	// atOnce limits the paths that are measured at once. A measurement of a narrow path takes some seconds.
	atOnce = 8
	// mostNamed limits the paths that the condition names.
	mostNamed = 8
	// leastLimit is the lowest limit of pods' packets: IPv6 works with no smaller MTU (RFC 8200, section 5), and a
	// firewall that drops long pings only must not harm the pods more. It serves both families. Routers of IPv4
	// fragment the tunnel packets that a path does not carry then; tunnel packets of vxlan6 are lost.
	leastLimit = 1280
)

// Peer is another node with a tunnel.
type Peer struct {
	Name    string
	Address netip.Addr // the end of its tunnels
}

// Config has the dependencies of a [Monitor].
type Config struct {
	Node     string     // the name of this node
	Self     netip.Addr // the end of this node's tunnels
	Peers    func() []Peer
	Needed   int // bytes of the longest tunnel packet, with its IP header
	Overhead int // bytes of these that are headers of the tunnel
	Health   *health.Conditions
	Log      *slog.Logger

	Sufficed func(to netip.Addr) error // called when a path suffices

	// Limit limits the packets of pods to other nodes to a length, bytes; 0: no limit.
	Limit func(ctx context.Context, mtu int) error

	// Measure returns the length of the longest packet that reaches an address without fragments, at most needed; an
	// error if the other node answers no packet of any length. Nil: [Measure].
	Measure func(ctx context.Context, p Path) (int, error)
}

// Path is a path to another node.
type Path struct {
	From, To netip.Addr
	Needed   int // bytes
}

// Monitor measures the paths to other nodes.
type Monitor struct {
	Config

	limit  int    // as set last, also by an earlier run; only Run uses it
	failed string // why the limit was not set, as logged; only Run uses it

	measured chan struct{} // has capacity 1; a path was measured since Run looked last

	mu    sync.Mutex
	paths map[Peer]*path
}

// path is the known state of the path to a node.
type path struct {
	mtu     int   // bytes, at most Needed, as measured last; 0: not measured yet
	err     error // why the last measurement failed
	due     time.Time
	running bool
}

// New returns a monitor without measurements.
func New(c Config) *Monitor {
	if c.Measure == nil {
		c.Measure = Measure
	}
	c.Health.Advise(health.PathMTU)
	return &Monitor{Config: c, paths: make(map[Peer]*path), measured: make(chan struct{}, 1)}
}

// Restore takes over the limit of an earlier run, before Run. It holds until all paths are measured. m may be nil.
func (m *Monitor) Restore(limit int) {
	if m != nil {
		m.limit = limit
	}
}

// Run measures each path when its node appears, and then periodically, until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	var measurements errgroup.Group
	defer func() { _ = measurements.Wait() }() // they return no errors
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		for _, peer := range m.begin(time.Now()) {
			measurements.Go(func() error { m.measure(ctx, peer); return nil })
		}
		m.setLimit(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-m.measured: // the limit follows the condition without delay
		}
	}
}

// begin marks the paths that are due at a time as being measured, as many as may be measured at once, and returns their
// nodes: those first that answered last time, because a silent node takes long. It forgets nodes that are gone.
func (m *Monitor) begin(now time.Time) (due []Peer) {
	peers := m.Peers()
	m.mu.Lock()
	defer m.mu.Unlock()
	had := len(m.paths)
	maps.DeleteFunc(m.paths, func(p Peer, _ *path) bool { return !slices.Contains(peers, p) })
	running := 0
	for _, peer := range peers {
		p := m.paths[peer]
		if p == nil {
			p = new(path)
			m.paths[peer] = p
		}
		switch {
		case p.running:
			running++
		case !now.Before(p.due):
			due = append(due, peer)
		}
	}
	slices.SortStableFunc(due, func(a, b Peer) int { return cmp.Compare(m.paths[a].silence(), m.paths[b].silence()) })
	due = due[:min(len(due), atOnce-running)]
	for _, peer := range due {
		m.paths[peer].running = true
	}
	if len(m.paths) != had {
		m.reportLocked()
	}
	return due
}

// measure measures the path to a node.
func (m *Monitor) measure(ctx context.Context, peer Peer) {
	mtu, err := m.Measure(ctx, Path{From: m.Self, To: peer.Address, Needed: m.Needed})
	if ctx.Err() != nil {
		return
	}
	suffices := err == nil && mtu >= m.Needed
	if suffices {
		if err := m.Sufficed(peer.Address); err != nil {
			m.Log.Warn("path to a node", "node", peer.Name, "err", err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.paths[peer]
	if p == nil {
		return // the node is gone
	}
	switch {
	case err == nil && !suffices && p.mtu != mtu:
		m.Log.Warn("the path to a node has a smaller MTU than its tunnels need", "node", peer.Name, "mtu", mtu,
			"needed", m.Needed)
	case suffices && p.isNarrow(m.Needed):
		m.Log.Info("the path to a node suffices again", "node", peer.Name, "mtu", mtu)
	}
	wait := retryPeriod
	if suffices {
		wait = max(period, time.Duration(len(m.paths))*perPeer)
	}
	if err != nil {
		mtu = p.mtu
	}
	*p = path{mtu: mtu, err: err, due: time.Now().Add(wait)}
	m.reportLocked()
	select {
	case m.measured <- struct{}{}:
	default:
	}
}

// silence is the order of measurements: nodes that did not answer are last.
func (p *path) silence() int {
	if p.err != nil {
		return 1
	}
	return 0
}

// silent says why a path was not measured, and that it still counts for the limit if it was narrow before.
func (p *path) silent(needed int) string {
	if p.mtu == 0 || p.mtu >= needed {
		return p.err.Error()
	}
	return fmt.Sprintf("%s; %d before, which still limits packets", p.err, p.mtu)
}

func (p *path) isNarrow(needed int) bool { return p.err == nil && p.mtu != 0 && p.mtu < needed }

// reportLocked sets the condition.
func (m *Monitor) reportLocked() {
	var narrow, unknown []string
	least := m.Needed
	for _, peer := range m.sortedLocked() {
		switch p := m.paths[peer]; {
		case p.isNarrow(m.Needed):
			narrow = append(narrow, fmt.Sprintf("%s to %s (%s): %d", m.Node, peer.Name, peer.Address, p.mtu))
			least = min(least, p.mtu)
		case p.err != nil:
			unknown = append(unknown, fmt.Sprintf("%s (%s)", peer.Name, p.silent(m.Needed)))
		}
	}
	var text []string
	if len(narrow) > 0 {
		text = append(text,
			fmt.Sprintf("tunnel packets of pods have up to %d bytes, and the paths between nodes carry less: %s; %s",
				m.Needed, listOf(narrow), m.remedy(least)))
	}
	if len(unknown) > 0 {
		text = append(text, "not measured: "+listOf(unknown))
	}
	m.Health.Set(health.PathMTU, len(narrow) == 0, strings.Join(text, "; "))
}

// remedy says what helps where the narrowest path carries a length.
func (m *Monitor) remedy(least int) string {
	if mtu := least - m.Overhead; mtu >= leastLimit {
		return fmt.Sprintf("repair the network, or set mtu: %d on all nodes", mtu)
	}
	return fmt.Sprintf("repair the network: IPv6 needs paths of %d bytes, and pods are limited to %d",
		leastLimit+m.Overhead, leastLimit)
}

// setLimit limits the packets of pods to the size that the narrowest path carries. A limit for each node would need
// more than one interface of a network in the dataplane.
func (m *Monitor) setLimit(ctx context.Context) {
	least, complete := m.least()
	limit := 0
	if least < m.Needed {
		limit = max(least-m.Overhead, min(leastLimit, m.Needed-m.Overhead))
	}
	isLower := limit != 0 && (m.limit == 0 || limit < m.limit)
	if limit == m.limit || !isLower && !complete {
		return
	}
	if err := m.Limit(ctx, limit); err != nil {
		if m.failed != err.Error() {
			m.Log.Error("limit of the MTU to other nodes not applied, retrying", "mtu", limit,
				"err", err)
		}
		m.failed = err.Error()
		return
	}
	m.limit = limit
	m.failed = ""
}

// least returns the MTU of the narrowest path. complete reports whether all paths were measured, with or without
// success.
func (m *Monitor) least() (mtu int, complete bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mtu = m.Needed
	complete = len(m.paths) > 0
	for _, p := range m.paths {
		if p.mtu != 0 {
			mtu = min(mtu, p.mtu)
		}
		complete = complete && (p.mtu != 0 || p.err != nil)
	}
	return mtu, complete
}

// sortedLocked returns the nodes by name.
func (m *Monitor) sortedLocked() []Peer {
	return slices.SortedFunc(maps.Keys(m.paths), func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Address.Compare(b.Address))
	})
}

// listOf joins the first texts.
func listOf(texts []string) string {
	if more := len(texts) - mostNamed; more > 0 {
		texts = append(texts[:mostNamed:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
