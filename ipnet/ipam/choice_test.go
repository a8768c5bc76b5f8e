package ipam_test

import (
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

func TestAddressesComeFromNamedPools(t *testing.T) {
	pools := []netaddr.Pool{
		{Name: "a", Prefix: netip.MustParsePrefix("10.1.0.0/29")},
		{Name: "off", Prefix: netip.MustParsePrefix("10.2.0.0/29"), Disabled: true},
		{Name: "b", Prefix: netip.MustParsePrefix("10.3.0.0/30")},
		{Name: "theirs", Prefix: netip.MustParsePrefix("10.4.0.0/29"), Namespaces: []string{"blue"}},
		{Name: "six", Prefix: netip.MustParsePrefix("2001:db8::/125")},
	}
	tests := []struct {
		name   string
		pools  []string
		wanted []string
		want   []string
	}{
		{"none named: the first that is for everybody", nil, nil, []string{"10.1.0.2", "2001:db8::2"}},
		{"the order of the names counts", []string{"b", "six", "a"}, nil, []string{"10.3.0.2", "2001:db8::2"}},
		{"a family without a named pool gets none", []string{"theirs"}, nil, []string{"10.4.0.2"}},
		{
			"a wanted address need not be of a named pool", []string{"six"}, []string{"10.1.0.4"},
			[]string{"10.1.0.4", "2001:db8::2"},
		},
		{"no pool at all is no address", []string{}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := request("x", tt.wanted...)
			r.Pools = tt.pools
			leases, err := newAllocator(t, newClock(), pools...).Lease(r)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range leases {
				got = append(got, l.Address.String())
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// A full pool does not make disabled pools or pools with namespaces eligible.
func TestPoolsWithNamespacesAreNotUsedUnlessNamed(t *testing.T) {
	a := newAllocator(t, newClock(),
		netaddr.Pool{Name: "off", Prefix: netip.MustParsePrefix("10.2.0.0/29"), Disabled: true},
		netaddr.Pool{Name: "theirs", Prefix: netip.MustParsePrefix("10.4.0.0/29"), Namespaces: []string{"blue"}},
		netaddr.Pool{Name: "all", Prefix: netip.MustParsePrefix("10.3.0.0/30")},
	)
	leases, err := a.Lease(request("x"))
	if err != nil || len(leases) != 1 || leases[0].Pool != "all" {
		t.Errorf("leases %v, %v, expected one of pool all", leases, err)
	}
	if leases, err := a.Lease(request("y")); err == nil {
		t.Errorf("the pool is full, and %v is leased", leases)
	}
}

func TestFullNamedPoolIsSkipped(t *testing.T) {
	a := newAllocator(t, newClock(), four, next)
	for i, want := range []string{"10.2.0.2", "10.1.0.2"} {
		r := request(string(rune('a' + i)))
		r.Pools = []string{"next", "four"}
		if leases, err := a.Lease(r); err != nil || leases[0].Address.String() != want {
			t.Errorf("got %v, error %v, want %s", leases, err, want)
		}
	}
}

func TestAddressIsTakenOverAtTheCommit(t *testing.T) {
	for _, committed := range []bool{true, false} {
		a := newAllocator(t, newClock(), four)
		use(t, a, "old")
		before := a.Leases()
		r := request("new", "10.1.0.2")
		if _, err := a.Lease(r); !errors.Is(err, ipam.ErrInUse{Address: r.Addresses[0], Holder: "old"}) {
			t.Fatalf("not from old: error %v", err)
		}
		r.From = []string{"older", "old"}
		if _, err := a.Lease(r); err != nil {
			t.Fatal(err)
		}
		if !committed {
			a.Undo("new")
			if !reflect.DeepEqual(a.Leases(), before) {
				t.Errorf("undone: %v, was %v", a.Leases(), before)
			}
			continue
		}
		a.Commit("new")
		if a.Release("old"); len(a.Held("new")) != 1 || len(a.Held("old")) != 0 {
			t.Errorf("after the release of old: %v", a.Leases())
		}
	}
}

func TestPendingAndInternalAddressesAreNotTakenOver(t *testing.T) {
	a := newAllocator(t, newClock(), four)
	lease(t, a, "pending")
	for address, holder := range map[string]string{"10.1.0.1": ipam.InternalHolder, "10.1.0.2": "pending"} {
		r := request("new", address)
		r.From = []string{holder}
		if _, err := a.Lease(r); !errors.Is(err, ipam.ErrInUse{Address: r.Addresses[0], Holder: holder}) {
			t.Errorf("%s of %s: error %v", address, holder, err)
		}
	}
}

func TestLeasesOfIdleAddressesAreStored(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, four)
	use(t, a, "a")
	use(t, a, "b")
	a.Release("a")
	c.pass(2 * coolDown)
	got := a.Remembered()
	if len(got) != 2 || got[0].State != ipam.Cooling || got[1].Holder != "b" {
		t.Errorf("remembered %v", got)
	}
}
