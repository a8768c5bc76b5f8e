package ipam_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/weftnet/weft/ipnet/ipam"
)

func TestAClaimHoldsItsAddress(t *testing.T) {
	const claim = "IPAMClaim shop/db-0"
	held := netip.MustParseAddr("10.1.0.2")
	c := newClock()
	a := newAllocator(t, c, four)
	a.HoldFor(map[netip.Addr]string{held: claim})
	if got := use(t, a, "a"); got[0] == held.String() {
		t.Errorf("a pod without the claim got %v", got)
	}
	for _, of := range []string{"", "IPAMClaim shop/db-1"} {
		r := request("b", held.String())
		r.Claim = of
		if _, err := a.Lease(r); !errors.Is(err, ipam.ErrOccupied{Address: held, By: claim, IsClaim: true}) {
			t.Errorf("request of %q: %v", of, err)
		}
	}
	r := request("b", held.String())
	r.Claim = claim
	if _, err := a.Lease(r); err != nil {
		t.Errorf("request of the claim: %v", err)
	}
	a.Undo("b")
	occupy(a, held.String())
	if _, err := a.Lease(r); !errors.Is(err, ipam.ErrOccupied{Address: held, By: eth1}) {
		t.Errorf("request of the claim for the address of a machine: %v", err)
	}
	occupy(a)
	a.HoldFor(nil)
	if _, err := a.Lease(request("b", held.String())); err != nil {
		t.Errorf("without the claim: %v", err)
	}
}

// The node of a block lends the address to the node of the claim's next pod.
func TestAHeldAddressIsLentOnRequestOnly(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, cluster)
	addBlock(t, a, middle)
	held := netip.MustParseAddr("10.8.7.0")
	a.HoldFor(map[netip.Addr]string{held: "IPAMClaim shop/db-0"})
	if got := a.Withhold(middle, netip.Addr{}, ""); got == held || !got.IsValid() {
		t.Errorf("any address is %s", got)
	}
	if got := a.Withhold(middle, held, "shop"); got != held {
		t.Errorf("lent is %s, want %s", got, held)
	}
}
