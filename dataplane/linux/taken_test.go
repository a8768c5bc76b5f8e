package linux

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestAnAddressIsTakenAsSoonAsItIsThere: what comes for it is not dropped, or a pod's first answers would be lost.
func TestAnAddressIsTakenAsSoonAsItIsThere(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.ground()...)
	for n := range 100 {
		for _, prefix := range []string{fmt.Sprintf("10.3.0.%d/32", n+1), fmt.Sprintf("fd00:3::%x/128", n+1)} {
			l.mustCommit(l.address(prefix))
			l.inside(func() {
				routes, err := netlink.RouteGet(netip.MustParsePrefix(prefix).Addr().AsSlice())
				if err != nil || len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
					t.Errorf("%s: %v, %v", prefix, routes, err)
				}
			})
		}
	}
}
