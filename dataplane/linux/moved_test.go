package linux

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/wire"
)

// ruleFrom leads packets from an address to a table.
func ruleFrom(t *testing.T, source string, table int) {
	t.Helper()
	r := netlink.NewRule()
	r.Family, r.Table, r.Src = unix.AF_INET, table, ipNet(netip.MustParsePrefix(source))
	if err := netlink.RuleAdd(r); err != nil {
		t.Skip("needs rules: ", err)
	}
}

// TestARouteThatOthersMovedIsKnown moves a default route as plugins for source based routing do.
func TestARouteThatOthersMovedIsKnown(t *testing.T) {
	gateway := netip.MustParseAddr("169.254.1.1")
	tests := map[string]struct {
		source  string // of the rule
		table   int    // of the rule
		gateway string // of the route in table 100
		moved   bool
	}{
		"a rule of the pod's address leads there":       {"10.1.0.5/32", 100, "169.254.1.1", true},
		"a rule of another address leads there":         {"10.1.0.6/32", 100, "169.254.1.1", false},
		"a rule of the pod's address leads elsewhere":   {"10.1.0.5/32", 101, "169.254.1.1", false},
		"the route there has another gateway":           {"10.1.0.5/32", 100, "169.254.1.2", false},
		"the rule is of a network that holds the pod's": {"10.1.0.0/24", 100, "169.254.1.1", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := netnstest.New(t)
			netnstest.Do(t, path, func() {
				link := addDummy(t, "eth0")
				must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.1.0.5/32"))}))
				must(t, netlink.RouteAdd(&netlink.Route{
					LinkIndex: link.Attrs().Index, Table: 100, Gw: netip.MustParseAddr(tt.gateway).AsSlice(), Flags: int(netlink.FLAG_ONLINK),
				}))
				ruleFrom(t, tt.source, tt.table)
			})
			v := wire.LinuxRoute{Namespace: path, Link: "eth0", Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: gateway}
			if moved, err := RouteMoved(v); err != nil || moved != tt.moved {
				t.Errorf("moved %v, error %v", moved, err)
			}
		})
	}
}

func TestARouteOfALinkThatIsGoneIsNotMoved(t *testing.T) {
	v := wire.LinuxRoute{Namespace: netnstest.New(t), Link: "eth0", Destination: netip.MustParsePrefix("0.0.0.0/0")}
	if moved, err := RouteMoved(v); err == nil || moved {
		t.Errorf("moved %v, error %v", moved, err)
	}
}
