package ipam_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

const eth1 = "link eth1 of this node"

// occupy makes machines have exactly these addresses.
func occupy(a *ipam.Allocator, addresses ...string) {
	by := make(map[netip.Addr]string)
	for _, text := range addresses {
		by[netip.MustParseAddr(text)] = eth1
	}
	a.Occupy(by)
}

func TestAddressOfAMachineIsGrantedToNoPod(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, four)
	occupy(a, "10.1.0.2", "10.1.0.4", "10.9.9.9")
	got := slices.Concat(use(t, a, "a"), use(t, a, "b"), use(t, a, "c"))
	if want := []string{"10.1.0.3", "10.1.0.5", "10.1.0.6"}; !slices.Equal(got, want) {
		t.Errorf("pods got %v, want %v", got, want)
	}
	_, err := a.Lease(request("d"))
	if !errors.Is(err, ipam.ErrExhausted{Pool: "four", Occupied: 2}) ||
		!strings.Contains(err.Error(), "2 are skipped: nodes have them, or IPAMClaims hold them") {
		t.Errorf("error of a fourth pod: %v", err)
	}
	_, err = a.Lease(request("d", "10.1.0.4"))
	if !errors.Is(err, ipam.ErrOccupied{Address: netip.MustParseAddr("10.1.0.4"), By: eth1}) ||
		err.Error() != "address 10.1.0.4 belongs to link eth1 of this node" {
		t.Errorf("error of a static address: %v", err)
	}
	checkStats(t, a, ipam.Stats{Pool: four, Used: 3, Occupied: 2})
	occupy(a, "10.1.0.4")
	if got := use(t, a, "d"); !slices.Equal(got, []string{"10.1.0.2"}) {
		t.Errorf("after the machine lost an address the pod got %v", got)
	}
}

func TestPodKeepsItsAddressIfAMachineGetsIt(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, next) // one address
	use(t, a, "a")
	occupy(a, "10.2.0.2")
	if got := lease(t, a, "a"); !slices.Equal(got, []string{"10.2.0.2"}) {
		t.Errorf("a repeated request returned %v", got)
	}
	checkStats(t, a, ipam.Stats{Pool: next, Used: 1})
	a.Release("a")
	if got := a.Leases(); len(got) != 2 || got[1].State != ipam.Occupied || got[1].Holder != eth1 {
		t.Errorf("leases after the release: %+v", got)
	}
	c.pass(2 * coolDown)
	if l, err := a.Lease(request("b")); !errors.Is(err, ipam.ErrExhausted{Pool: "next", Occupied: 1}) {
		t.Errorf("another pod got %v, %v", l, err)
	}
	occupy(a)
	if got := use(t, a, "b"); !slices.Equal(got, []string{"10.2.0.2"}) {
		t.Errorf("after the machine lost the address a pod got %v", got)
	}
}

// The namespace of the former pod still counts when the machine loses the address.
func TestCoolDownContinuesWhileAMachineHasTheAddress(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, next)
	use(t, a, "a")
	a.Release("a")
	occupy(a, "10.2.0.2")
	c.pass(coolDown / 2)
	occupy(a)
	_, err := a.Lease(request("b"))
	if exhausted := (ipam.ErrExhausted{}); !errors.As(err, &exhausted) || exhausted.Cooling != 1 {
		t.Errorf("error within the cool-down: %v", err)
	}
	c.pass(coolDown)
	use(t, a, "b")
}

func TestLeaseThatIsUndoneDoesNotFreeAnAddressOfAMachine(t *testing.T) {
	a := newAllocator(t, newClock(), four)
	lease(t, a, "a")
	occupy(a, "10.1.0.2")
	a.Undo("a")
	if got := use(t, a, "b"); !slices.Equal(got, []string{"10.1.0.3"}) {
		t.Errorf("another pod got %v", got)
	}
}

func TestRestoredPodKeepsAnAddressThatAMachineHas(t *testing.T) {
	a := newAllocator(t, newClock(), four)
	occupy(a, "10.1.0.2", "10.1.0.3")
	address := netip.MustParseAddr("10.1.0.2")
	cooling := ipam.Lease{Address: netip.MustParseAddr("10.1.0.3"), Holder: "gone", State: ipam.Cooling}
	if err := a.Restore([]ipam.Lease{{Address: address, Holder: "a", State: ipam.Used}, cooling}); err != nil {
		t.Fatal(err)
	}
	if got := a.Held("a"); len(got) != 1 || got[0].Address != address {
		t.Errorf("the pod has %+v", got)
	}
	if got := use(t, a, "b"); !slices.Equal(got, []string{"10.1.0.4"}) {
		t.Errorf("another pod got %v", got)
	}
}

func TestBlocksExcludeAddressesOfMachines(t *testing.T) {
	pool := netaddr.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.3.0.0/24"), Blocks: true}
	a := newAllocator(t, newClock(), pool)
	occupy(a, "10.3.0.64", "10.3.0.65", "10.3.0.67", "10.3.0.68")
	block := netip.MustParsePrefix("10.3.0.64/28")
	// Another node borrows the last one since before the machine had it: it must never be granted here.
	lent := netip.MustParseAddr("10.3.0.68")
	if err := a.AddBlock(block, lent); err != nil {
		t.Fatal(err)
	}
	own, err := a.ClaimInternal(block, netip.Addr{})
	if err != nil || own.String() != "10.3.0.66" {
		t.Errorf("the node's own address is %s: %v", own, err)
	}
	for _, wanted := range []string{"10.3.0.67", "10.3.0.65"} {
		if got := a.Withhold(block, netip.MustParseAddr(wanted), ""); got.IsValid() {
			t.Errorf("another node was offered %s", got)
		}
	}
	if got := a.Withhold(block, netip.Addr{}, ""); got.String() != "10.3.0.69" {
		t.Errorf("another node was offered %s", got)
	}
	occupy(a)
	if got := slices.Concat(use(t, a, "a"), use(t, a, "b"), use(t, a, "c"), use(t, a, "d")); !slices.Equal(got,
		[]string{"10.3.0.64", "10.3.0.65", "10.3.0.67", "10.3.0.70"}) {
		t.Errorf("pods got %v", got)
	}
	if !a.RemoveBlock(netip.MustParsePrefix("10.3.1.0/28")) || a.RemoveBlock(block) {
		t.Error("a block with pods was removed")
	}
}

// A node may have thousands of addresses: kube-proxy in mode ipvs adds all cluster IPs to a link.
func TestLeaseDoesNotSearchTheAddressesOfMachines(t *testing.T) {
	pool := netaddr.Pool{Name: "large", Prefix: netip.MustParsePrefix("10.4.0.0/16")}
	a := newAllocator(t, newClock(), pool)
	by := make(map[netip.Addr]string)
	for address := pool.Node().Next(); len(by) < 10_000; address = address.Next() {
		by[address] = eth1
	}
	a.Occupy(by)
	use(t, a, "first") // passes them once
	for i := range 100 {
		if got, want := lease(t, a, fmt.Sprint("p", i)), a.Next(); got[0] != want.String() {
			t.Fatalf("pod %d got %s, and the search is at %s", i, got[0], want)
		}
	}
	checkStats(t, a, ipam.Stats{Pool: pool, Free: 1<<16 - 3 - 10_000 - 101, Leased: 100, Used: 1, Occupied: 10_000})
}
