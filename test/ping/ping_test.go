package ping_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/ping"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func open(t *testing.T, path string, to netip.Addr) *ping.Pinger {
	t.Helper()
	p, err := ping.Open(path, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestReachSucceedsWhenTheAddressAnswers(t *testing.T) {
	path := netnstest.New(t)
	for _, to := range []string{"127.0.0.1", "::1"} {
		t.Run(to, func(t *testing.T) {
			to := netip.MustParseAddr(to)
			took, err := open(t, path, to).Reach(t.Context(), to)
			if err != nil || took <= 0 {
				t.Errorf("took %v, error %v", took, err)
			}
		})
	}
}

// blackHole makes a namespace that sends echo requests to the address, but has no host with it.
func blackHole(t *testing.T) (path string, to netip.Addr) {
	t.Helper()
	path = netnstest.New(t)
	to = netip.MustParseAddr("192.0.2.2")
	netnstest.Do(t, path, func() {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near", Flags: net.FlagUp}, PeerName: "far"}
		must.Succeed(t, netlink.LinkAdd(link))
		must.Succeed(t, netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "far"}}))
		address, err := netlink.ParseAddr("192.0.2.1/24")
		must.Succeed(t, err)
		must.Succeed(t, netlink.AddrAdd(link, address))
		must.Succeed(t,
			netlink.NeighAdd(&netlink.Neigh{LinkIndex: link.Index, IP: to.AsSlice(), State: netlink.NUD_PERMANENT,
				HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}))
	})
	return path, to
}

func TestReachFailsWhenTheAddressIsSilent(t *testing.T) {
	path, to := blackHole(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if took, err := open(t, path, to).Reach(ctx, to); err == nil {
		t.Errorf("reached in %v", took)
	}
}

func TestStreamCountsRepliesAndLosses(t *testing.T) {
	hole, silent := blackHole(t)
	tests := []struct {
		name string
		path string
		to   netip.Addr
		lost bool
	}{
		{"none lost", netnstest.New(t), netip.MustParseAddr("127.0.0.1"), false},
		{"all lost", hole, silent, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			loss, err := open(t, tt.path, tt.to).Stream(ctx, tt.to, 5*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			want := loss.Sent
			if tt.lost {
				want = 0
			}
			if loss.Sent < 5 || loss.Answered != want {
				t.Errorf("%s, want %d answered", loss, want)
			}
		})
	}
}
