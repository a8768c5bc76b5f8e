package policies

import (
	"fmt"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// EndpointSlices refer to pods that are gone for a while. Only pods that none refers to are forgotten.
func TestDepartedPodsThatAreUsedAreKept(t *testing.T) {
	var d departed
	isUsed := func(uid types.UID) bool { return uid == "used" }
	shared := netip.MustParseAddr("10.1.0.1")
	own := netip.MustParseAddr("10.1.0.2")
	d.add("used", []netip.Addr{shared, own})
	for n := range departedLimit - 1 {
		d.add(types.UID(fmt.Sprint(n)), []netip.Addr{shared})
	}
	if d.sweep(isUsed); len(d.addresses) != departedLimit {
		t.Errorf("%d pods are kept within the limit of %d", len(d.addresses), departedLimit)
	}
	d.add("one more", []netip.Addr{netip.MustParseAddr("10.1.0.3")})
	d.sweep(isUsed)
	if len(d.addresses) != 1 || !d.left("used", shared) || !d.left("used", own) || len(d.at) != 2 {
		t.Errorf("%d pods with %d addresses are kept", len(d.addresses), len(d.at))
	}
}
