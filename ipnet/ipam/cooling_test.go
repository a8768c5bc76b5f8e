package ipam_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

// of returns a request of a pod of a namespace.
func of(namespace string, r ipam.Request) ipam.Request {
	r.Namespace = namespace
	return r
}

func TestCoolingAddressIsGrantedInTheNamespaceOfItsLastHolder(t *testing.T) {
	const address = "10.1.0.4"
	for _, tt := range []struct {
		what, last, asks string
		passed           time.Duration
		isGranted        bool
	}{
		{"the same namespace", "a", "a", 0, true},
		{"another namespace", "a", "b", 0, false},
		{"another namespace just before the end", "a", "b", coolDown - time.Nanosecond, false},
		{"another namespace at the end", "a", "b", coolDown, true},
		{"a container without a pod", "a", "", 0, false},
		{"the last holder is not known", "", "b", 0, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			c := newClock()
			a := newAllocator(t, c, four, six)
			if _, err := a.Lease(of(tt.last, request("last", address))); err != nil {
				t.Fatal(err)
			}
			a.Commit("last")
			freeAt := c.now.Add(coolDown)
			a.Release("last")
			c.pass(tt.passed)
			for range 2 { // a refusal, or an undone lease, changes nothing
				leases, err := a.Lease(of(tt.asks, request("asks", address)))
				switch want := (ipam.ErrCooling{Address: netip.MustParseAddr(address), FreeAt: freeAt}); {
				case !tt.isGranted && !errors.Is(err, want):
					t.Errorf("granted %v, error %v, want %v", leases, err, want)
				case tt.isGranted && (err != nil || leases[0].Namespace != tt.asks):
					t.Errorf("granted %v, error %v", leases, err)
				}
				a.Undo("asks")
			}
		})
	}
}

// Another node asks for an address of this node's block for one of its pods.
func TestCoolingAddressIsWithheldForPodsOfTheNamespaceOfItsLastHolder(t *testing.T) {
	c := newClock()
	pool := netaddr.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Blocks: true}
	block := netip.MustParsePrefix("10.1.5.0/26")
	a := newAllocator(t, c, pool)
	if err := a.AddBlock(block); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"10.1.5.7", "10.1.5.8"} {
		if _, err := a.Lease(of("bank", request(address, address))); err != nil {
			t.Fatal(err)
		}
		a.Commit(address)
		a.Release(address)
	}
	wanted := netip.MustParseAddr("10.1.5.7")
	for _, namespace := range []string{"evil", ""} {
		if got := a.Withhold(block, wanted, namespace); got.IsValid() {
			t.Errorf("%s is withheld for a pod of namespace %q", got, namespace)
		}
	}
	if got := a.Withhold(block, wanted, "bank"); got != wanted {
		t.Errorf("for a pod of the same namespace %s is withheld", got)
	}
	c.pass(coolDown)
	if got := a.Withhold(block, netip.MustParseAddr("10.1.5.8"), "evil"); !got.IsValid() {
		t.Error("after the cool-down the address is not withheld for a pod of another namespace")
	}
}
