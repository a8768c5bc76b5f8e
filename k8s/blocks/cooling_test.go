package blocks_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weftnet/weft/k8s/blocks"
)

// Others still send to the last pod of a borrowed address: during its cool-down it goes only to a pod of the namespace
// of the loan.
func TestBorrowedAddressThatCoolsDownStaysWithItsBorrower(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	owner := l.node("n1")
	borrower := l.node("n2")
	third := l.node("n3")
	l.step(owner)
	address := netip.MustParseAddr("10.1.0.7")
	if err := l.static(borrower, address.String(), "web-0", owner); err != nil {
		t.Fatal(err)
	}
	l.now = l.now.Add(2 * time.Minute) // the pod has run for some time
	borrower.end([]netip.Addr{address})
	thief := &blocks.Static{Pool: l.pools[0], Address: address, Namespace: "evil", Pod: "web-0"}
	tries := func() bool {
		for range 10 {
			if claimed, err := third.TryClaim(t.Context(), thief); claimed || err != nil {
				return claimed
			}
			for _, n := range []*node{owner, borrower, third} {
				_ = n.Step(t.Context())
			}
		}
		return false
	}
	if tries() {
		t.Error("a pod of another namespace has the address")
	}
	if lent := l.blockNamed("10.1.0.0-26").Borrowed; len(lent) != 1 || lent[0].Node != "n2" {
		t.Errorf("the loan is %v", lent)
	}
	l.now = l.now.Add(borrower.local.Rest)
	if !tries() {
		t.Error("after the cool-down a pod of another namespace does not get the address")
	}
	l.sound(owner, borrower, third)
}
