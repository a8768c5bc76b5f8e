package ipnet_test

import (
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// VPP allows a donor loopback with addresses of both families only in both of the loopback's VRFs.
func TestUnnumberedInterfaceIsInAllVRFsOfItsDonor(t *testing.T) {
	n := newNode(t, four, six).run(t)
	a := n.add(t, foreign("a", "10.7.0.5/32"))
	object := a.Interfaces[0].Object
	for _, f := range []netaddr.Family{netaddr.IP4, netaddr.IP6} {
		if n.committer.Values()[wire.InterfaceVRFKey(object, f)] == nil {
			t.Errorf("%s is not in the VRF for %s", object, f)
		}
	}
	want := wire.Unnumbered{Interface: object, Donor: "weft-gateway", IP4: true, IP6: true}
	if got := n.committer.Values()[wire.UnnumberedKey(object)]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
