package pathmtu

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/agent/health"
)

var (
	here = netip.MustParseAddr("192.0.2.1")
	n2   = Peer{"n2", netip.MustParseAddr("192.0.2.2")}
	n3   = Peer{"n3", netip.MustParseAddr("192.0.2.3")}
)

// lab is a monitor whose paths have the MTU of the test.
type lab struct {
	*Monitor
	t        *testing.T
	peers    []Peer
	mtu      map[netip.Addr]int // 0: no answer
	sufficed []netip.Addr
	limits   []int
	refuses  error // of Limit
}

func newLab(t *testing.T, peers ...Peer) *lab {
	l := &lab{t: t, peers: peers, mtu: make(map[netip.Addr]int)}
	l.Monitor = New(Config{
		Node: "n1", Self: here, Peers: func() []Peer { return l.peers }, Needed: 1500, Overhead: 50,
		Health: health.New("", slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler),
		Sufficed: func(to netip.Addr) error { l.sufficed = append(l.sufficed, to); return nil },
		Limit: func(_ context.Context, mtu int) error {
			if l.refuses == nil {
				l.limits = append(l.limits, mtu)
			}
			return l.refuses
		},
		Measure: func(_ context.Context, p Path) (int, error) {
			if p.From != here || p.Needed != 1500 {
				t.Errorf("measures %+v", p)
			}
			if l.mtu[p.To] == 0 {
				return 0, errors.New("no answer")
			}
			return l.mtu[p.To], nil
		},
	})
	return l
}

// pass measures the paths that are due at a time.
func (l *lab) pass(at time.Time) (measured []string) {
	for {
		before := len(measured)
		for _, peer := range l.begin(at) {
			if slices.Contains(measured, peer.Name) {
				l.paths[peer].running = false // due again
				continue
			}
			l.measure(l.t.Context(), peer)
			measured = append(measured, peer.Name)
		}
		if len(measured) == before {
			return measured
		}
	}
}

func (l *lab) want(ok bool, message string) {
	l.t.Helper()
	_, conditions := l.Health.Snapshot()
	at := slices.IndexFunc(conditions, func(c health.Condition) bool { return c.Name == health.PathMTU })
	if c := conditions[at]; c.OK != ok || c.Message != message || !c.Advisory {
		l.t.Errorf("condition %+v, want %t, %q", c, ok, message)
	}
}

func TestNarrowPathsAreNamedUntilTheySuffice(t *testing.T) {
	l := newLab(t, n2, n3)
	l.mtu[n2.Address] = 1400
	l.mtu[n3.Address] = 1500
	l.pass(time.Now())
	l.want(false,
		"tunnel packets of pods have up to 1500 bytes, and the paths between nodes carry less: n1 to n2 (192.0.2.2): 1400; "+
			"repair the network, or set mtu: 1350 on all nodes")
	l.mtu[n3.Address] = 1340
	l.pass(time.Now().Add(time.Hour))
	l.want(false,
		"tunnel packets of pods have up to 1500 bytes, and the paths between nodes carry less: n1 to n2 (192.0.2.2): 1400, "+
			"n1 to n3 (192.0.2.3): 1340; repair the network, or set mtu: 1290 on all nodes")
	l.mtu[n3.Address] = 1300 // no MTU of pods helps
	l.pass(time.Now().Add(time.Hour))
	l.want(false,
		"tunnel packets of pods have up to 1500 bytes, and the paths between nodes carry less: n1 to n2 (192.0.2.2): 1400, "+
			"n1 to n3 (192.0.2.3): 1300; repair the network: IPv6 needs paths of 1330 bytes, and pods are limited to 1280")
	l.mtu[n3.Address] = 1500
	l.sufficed = nil
	l.peers = []Peer{n3}
	l.pass(time.Now().Add(time.Hour))
	l.want(true, "")
	if !slices.Equal(l.sufficed, []netip.Addr{n3.Address}) {
		t.Errorf("sufficed: %v", l.sufficed)
	}
}

// A firewall may drop pings: that says nothing of the path.
func TestSilentNodesDoNotFailTheCondition(t *testing.T) {
	l := newLab(t, n2)
	l.pass(time.Now())
	l.want(true, "not measured: n2 (no answer)")
}

func TestPathsAreMeasuredAgainSoonerIfTheyDoNotSuffice(t *testing.T) {
	l := newLab(t, n2, n3)
	l.mtu[n2.Address] = 1400
	l.mtu[n3.Address] = 1500
	l.pass(time.Now())
	if got := l.pass(time.Now()); got != nil {
		t.Errorf("measured again at once: %v", got)
	}
	if got := l.pass(time.Now().Add(retryPeriod)); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("measured after %v: %v", retryPeriod, got)
	}
	if got := l.pass(time.Now().Add(period)); len(got) != 2 {
		t.Errorf("measured after %v: %v", period, got)
	}
}

// The limit is that of the narrowest path. A measurement that fails does not lift it.
func TestPacketsOfPodsAreLimitedToTheNarrowestPath(t *testing.T) {
	l := newLab(t, n2, n3)
	at := time.Now()
	want := func(limits ...int) {
		t.Helper()
		at = at.Add(time.Hour)
		l.pass(at)
		l.setLimit(t.Context())
		l.setLimit(t.Context())
		if !slices.Equal(l.limits, limits) {
			t.Errorf("limits %v, want %v", l.limits, limits)
		}
	}
	l.mtu[n2.Address] = 1500
	l.mtu[n3.Address] = 1500
	want()
	l.mtu[n2.Address] = 1400
	l.mtu[n3.Address] = 1340
	want(1290)
	l.mtu[n3.Address] = 0
	want(1290)
	l.mtu[n3.Address] = 1500
	l.refuses = errors.New("not now")
	want(1290)
	l.refuses = nil
	want(1290, 1350)
	l.peers = []Peer{n3}
	want(1290, 1350, 0)
	l.mtu[n3.Address] = 600 // or a firewall drops longer pings
	want(1290, 1350, 0, 1280)
}

// After a restart the network is what it was: the dataplane keeps the limit until it is known to be unnecessary.
func TestLimitOfAnEarlierRunHoldsUntilAllPathsAreMeasured(t *testing.T) {
	l := newLab(t)
	l.Restore(1350)
	l.pass(time.Now())
	l.setLimit(t.Context())
	l.peers = []Peer{n2, n3}
	l.mtu[n2.Address] = 1500
	due := l.begin(time.Now())
	l.measure(t.Context(), due[0])
	l.setLimit(t.Context())
	if len(l.limits) != 0 {
		t.Errorf("limits %v before the last path is measured", l.limits)
	}
	l.measure(t.Context(), due[1]) // without an answer
	l.setLimit(t.Context())
	if !slices.Equal(l.limits, []int{0}) {
		t.Errorf("limits %v", l.limits)
	}
}

// A measurement of a silent node takes seconds.
func TestSilentNodesDelayNeitherTheLimitNorOtherNodes(t *testing.T) {
	l := newLab(t)
	for n := range 100 {
		a := netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + n)})
		l.peers = append(l.peers, Peer{Name: a.String(), Address: a})
	}
	l.peers = append(l.peers, n2)
	l.mtu[n2.Address] = 1400
	if due := l.begin(time.Now()); len(due) != atOnce {
		t.Fatalf("%d paths are measured at once", len(due))
	}
	if due := l.begin(time.Now()); len(due) != 0 {
		t.Errorf("%v are measured, too", due)
	}
	for p := range l.paths {
		l.paths[p] = new(path)
	}
	l.pass(time.Now())
	if due := l.begin(time.Now().Add(time.Hour)); len(due) == 0 || due[0] != n2 {
		t.Errorf("a node that answered is measured after %v", due)
	}

	limited := make(chan int, 1)
	l = newLab(t, n2, n3)
	l.Config.Measure = func(ctx context.Context, p Path) (int, error) {
		if p.To == n2.Address {
			return 1400, nil
		}
		<-ctx.Done()
		return 0, ctx.Err()
	}
	l.Config.Limit = func(_ context.Context, mtu int) error { limited <- mtu; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	select {
	case got := <-limited:
		if got != 1350 {
			t.Errorf("limit %d", got)
		}
	case <-time.After(time.Minute):
		t.Error("no limit while a measurement takes long")
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the monitor does not end")
	}
}

// Packets of pods are lost between the measurement and the limit.
func TestTheLimitFollowsAMeasurementAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, n2)
		measure := l.Config.Measure
		l.Config.Measure = func(ctx context.Context, p Path) (int, error) {
			<-time.After(look / 4)
			return measure(ctx, p)
		}
		l.mtu[n2.Address] = 1400
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = l.Run(ctx) }()
		<-time.After(look / 2)
		synctest.Wait()
		if !slices.Equal(l.limits, []int{1350}) {
			t.Errorf("limits %v after the measurement, want 1350", l.limits)
		}
	})
}

// The condition holds while a node is silent, but the limit that its path had stays, and the message says so.
func TestASilentNodeWhosePathWasNarrowIsNamed(t *testing.T) {
	l := newLab(t, n2)
	l.mtu[n2.Address] = 1400
	l.pass(time.Now())
	l.mtu[n2.Address] = 0
	l.pass(time.Now().Add(time.Hour))
	l.want(true, "not measured: n2 (no answer; 1400 before, which still limits packets)")
}

// The loop tries again every two seconds: one line of the log is enough.
func TestALimitThatIsRefusedIsLoggedOnce(t *testing.T) {
	var log strings.Builder
	l := newLab(t, n2)
	l.Log = slog.New(slog.NewTextHandler(&log, nil))
	l.mtu[n2.Address] = 1400
	l.refuses = errors.New("no dataplane")
	l.pass(time.Now())
	for range 3 {
		l.setLimit(t.Context())
	}
	if n := strings.Count(log.String(), "no dataplane"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

func TestANodeThatIsGoneLeavesTheCondition(t *testing.T) {
	l := newLab(t, n2)
	l.mtu[n2.Address] = 1400
	l.pass(time.Now())
	l.peers = nil
	l.begin(time.Now())
	l.want(true, "")
}

func TestPathsOfALargeClusterAreMeasuredLessOften(t *testing.T) {
	l := newLab(t)
	for n := range 1200 {
		a := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
		l.peers = append(l.peers, Peer{Name: a.String(), Address: a})
		l.mtu[a] = 1500
	}
	l.pass(time.Now())
	if due := l.begin(time.Now().Add(period + retryPeriod)); len(due) != 0 {
		t.Errorf("%d of 1200 paths are due after %s", len(due), period+retryPeriod)
	}
	if due := l.begin(time.Now().Add(2*period + retryPeriod)); len(due) != atOnce {
		t.Errorf("%d paths are due after %s", len(due), 2*period+retryPeriod)
	}
}

func TestManyNarrowPathsAreCounted(t *testing.T) {
	l := newLab(t)
	for n := range 20 {
		a := netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + n)})
		l.peers = append(l.peers, Peer{Name: a.String(), Address: a})
		l.mtu[a] = 1400
	}
	l.pass(time.Now())
	_, conditions := l.Health.Snapshot()
	if text := conditions[len(conditions)-1].Message; strings.Count(text, "n1 to ") != mostNamed ||
		!strings.Contains(text, "and 12 more") {
		t.Error(text)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	l := newLab(t, n2)
	ctx, cancel := context.WithCancel(t.Context())
	measured := make(chan bool, 1)
	l.Config.Measure = func(ctx context.Context, _ Path) (int, error) {
		measured <- true
		<-ctx.Done()
		return 0, ctx.Err()
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	<-measured
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
