package leftovers_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/must"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// place is a namespace with a link, a directory and this process; tests may add leases and a dataplane.
type place struct {
	leftovers.Places
	namespace, dir string
	veth           *netlink.Veth
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{namespace: netnstest.New(t), dir: t.TempDir()}
	netnstest.Do(t, p.namespace, func() {
		p.veth = &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "old", Flags: net.FlagUp}, PeerName: "peer"}
		must.Succeed(t, netlink.LinkAdd(p.veth))
	})
	p.Places = leftovers.Places{
		Namespaces:  map[string]string{"pod": p.namespace},
		Directories: []string{p.dir},
		Processes:   map[string]int{"self": os.Getpid()},
	}
	return p
}

func (p *place) take(t *testing.T) leftovers.Snapshot {
	t.Helper()
	s, err := leftovers.Take(t.Context(), p.Places)
	must.Succeed(t, err)
	return s
}

// plant makes a leftover, and has the beginning of the line that shows it.
type plant struct {
	kind  string
	plant func(t *testing.T, p *place)
	line  string
}

func plants() []plant {
	to := func(cidr string) *net.IPNet { _, n, _ := net.ParseCIDR(cidr); return n }
	return []plant{
		{"link", func(t *testing.T, _ *place) {
			must.Succeed(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "left"}}))
		}, "+ link pod left bridge down"},
		{"node's end of a veth", func(t *testing.T, _ *place) {
			must.Succeed(t,
				netlink.LinkAdd(&netlink.Veth{
					LinkAttrs: netlink.LinkAttrs{Name: "weft0123456789a"},
					PeerName:  "peer9",
				}))
		}, "+ link pod weft0123456789a veth down"},
		{"address", func(t *testing.T, p *place) {
			must.Succeed(t,
				netlink.AddrAdd(p.veth, &netlink.Addr{
					IPNet: &net.IPNet{IP: net.IP{192, 0, 2, 1}, Mask: net.CIDRMask(32, 32)},
				}))
		}, "+ address pod old 192.0.2.1/32"},
		{"route", func(t *testing.T, p *place) {
			must.Succeed(t,
				netlink.RouteAdd(&netlink.Route{LinkIndex: p.veth.Index, Dst: to("198.51.100.0/24"), Table: 77}))
		}, "+ route pod 198.51.100.0/24 via <nil> dev old table 77"},
		{"IPv6 route", func(t *testing.T, p *place) {
			must.Succeed(t, netlink.RouteAdd(&netlink.Route{LinkIndex: p.veth.Index, Dst: to("2001:db8::/64")}))
		}, "+ route pod 2001:db8::/64 via <nil> dev old table 254"},
		{"rule", func(t *testing.T, _ *place) {
			rule := netlink.NewRule()
			rule.Src = to("192.0.2.0/24")
			rule.Table = 77
			rule.Priority = 900
			must.Succeed(t, netlink.RuleAdd(rule))
		}, "+ rule pod ip rule 900: from 192.0.2.0/24"},
		{"neighbour", func(t *testing.T, p *place) {
			must.Succeed(t,
				netlink.NeighAdd(&netlink.Neigh{
					LinkIndex:    p.veth.Index,
					IP:           net.IP{192, 0, 2, 9},
					State:        netlink.NUD_PERMANENT,
					HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9},
				}))
		}, "+ neighbour pod old 192.0.2.9 at 02:00:00:00:00:09 permanent"},
		{"proxied neighbour", func(t *testing.T, p *place) {
			must.Succeed(t,
				netlink.NeighAdd(&netlink.Neigh{
					LinkIndex: p.veth.Index,
					IP:        net.IP{192, 0, 2, 8},
					Flags:     netlink.NTF_PROXY,
				}))
		}, "+ neighbour pod old 192.0.2.8 at  proxied"},
		{"changed link", func(t *testing.T, p *place) {
			must.Succeed(t, netlink.LinkSetMTU(p.veth, 1400))
		}, "+ link pod old veth up mtu 1400"},
		{"file", func(t *testing.T, p *place) {
			must.Succeed(t, os.WriteFile(filepath.Join(p.dir, "left"), nil, 0o600))
		}, "+ file "},
		{"changed mode of a file", func(t *testing.T, p *place) {
			must.Succeed(t, os.Chmod(p.dir, 0o700))
		}, "+ file "},
		{"descriptor of a file", func(t *testing.T, _ *place) {
			f, err := os.Open("/dev/zero")
			must.Succeed(t, err)
			t.Cleanup(func() { _ = f.Close() })
		}, "+ descriptor self /dev/zero"},
		{"descriptor of a socket", func(t *testing.T, _ *place) {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			must.Succeed(t, err)
			t.Cleanup(func() { _ = unix.Close(fd) })
		}, "+ descriptor self socket"},
	}
}

func TestSnapshotShowsLeftoversOfEachKind(t *testing.T) {
	netnstest.Require(t)
	for _, tt := range plants() {
		t.Run(tt.kind, func(t *testing.T) {
			p := newPlace(t)
			before := p.take(t)
			if again := p.take(t).Since(before); len(again) != 0 {
				t.Fatalf("difference without a leftover: %q", again)
			}
			netnstest.Do(t, p.namespace, func() { tt.plant(t, p) })
			lines := p.take(t).Since(before)
			if !anyBegins(lines, tt.line) {
				t.Errorf("no line begins with %q: %q", tt.line, lines)
			}
		})
	}
}

func anyBegins(lines []string, prefix string) bool {
	for _, l := range lines {
		if strings.HasPrefix(l, prefix) {
			return true
		}
	}
	return false
}

func TestSinceShowsMissingObjects(t *testing.T) {
	p := newPlace(t)
	before := p.take(t)
	netnstest.Do(t, p.namespace, func() { must.Succeed(t, netlink.LinkDel(p.veth)) })
	if lines := p.take(t).Since(before); !anyBegins(lines, "- link pod old veth") {
		t.Errorf("the removed link is missing: %q", lines)
	}
}

func TestSettleWaitsForTemporaryObjects(t *testing.T) {
	p := newPlace(t)
	before := p.take(t)
	late := filepath.Join(p.dir, "late")
	must.Succeed(t, os.WriteFile(late, nil, 0o600))
	timer := time.AfterFunc(50*time.Millisecond, func() { _ = os.Remove(late) })
	defer timer.Stop()
	after, err := leftovers.Settle(t.Context(), p.Places, before, time.Minute)
	if lines := after.Since(before); err != nil || len(lines) != 0 {
		t.Errorf("%q, error %v", lines, err)
	}
	must.Succeed(t, os.WriteFile(late, nil, 0o600))
	after, err = leftovers.Settle(t.Context(), p.Places, before, 50*time.Millisecond)
	if lines := after.Since(before); err != nil || len(lines) != 1 {
		t.Errorf("lines %q, error %v, want one line for the permanent object", lines, err)
	}
}

func TestSettleTakesEnoughSnapshotsOnASuspendedMachine(t *testing.T) {
	p := newPlace(t)
	before := p.take(t)
	late := filepath.Join(p.dir, "late")
	must.Succeed(t, os.WriteFile(late, nil, 0o600))
	timer := time.AfterFunc(100*time.Millisecond, func() { _ = os.Remove(late) })
	defer timer.Stop()
	after, err := leftovers.Settle(t.Context(), p.Places, before, time.Nanosecond)
	if lines := after.Since(before); err != nil || len(lines) != 0 {
		t.Errorf("%q, error %v", lines, err)
	}
	if _, err := leftovers.Steady(t.Context(), p.Places, time.Nanosecond); err != nil {
		t.Error(err)
	}
}

func TestUnreadablePlaceIsAnError(t *testing.T) {
	netnstest.Require(t)
	for name, p := range map[string]leftovers.Places{
		"namespace": {Namespaces: map[string]string{"gone": "/nowhere/gone"}},
		"process":   {Processes: map[string]int{"gone": 1 << 30}},
		"agent":     {Agent: "/nowhere/agent.sock"},
		"dataplane": {Dataplane: "/nowhere/api.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := leftovers.Take(t.Context(), p); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestSteadyFailsWhileObjectsComeAndGo(t *testing.T) {
	p := newPlace(t)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				_ = os.WriteFile(filepath.Join(p.dir, strconv.Itoa(i)), nil, 0o600)
			}
		}
	}()
	if _, err := leftovers.Steady(t.Context(), p.Places, 200*time.Millisecond); err == nil {
		t.Error("steady although files are created")
	}
	close(stop)
	<-stopped
	if _, err := leftovers.Steady(t.Context(), p.Places, time.Minute); err != nil {
		t.Error(err)
	}
}
