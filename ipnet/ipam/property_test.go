package ipam_test

import (
	"cmp"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

// model is the expected state of one pool, in the simplest form.
type model struct {
	clock     *clock
	pool      netaddr.Pool
	pods      []netip.Addr // in the pool
	held      map[netip.Addr]string
	committed map[string]bool
	released  []idle // in the order of release
	beforeOf  map[string]*idle
	machines  map[netip.Addr]string // what has an address
	claims    map[netip.Addr]string // what holds an address
}

// occupantOf returns the machine that has an address, or the claim that holds it.
func (m *model) occupantOf(a netip.Addr) string { return cmp.Or(m.machines[a], m.claims[a]) }

// occupied is the error of a request for an address that a machine or another claim has; nil if none has it.
func (m *model) occupied(a netip.Addr, claim string) error {
	by := m.occupantOf(a)
	if by == "" || by == claim {
		return nil
	}
	return ipam.ErrOccupied{Address: a, By: by, IsClaim: m.machines[a] == ""}
}

// skips reports whether no pod gets an address without a request for it.
func (m *model) skips(a netip.Addr) bool {
	return m.occupantOf(a) != "" || m.pool.Reserved.Contain(a) || m.pool.Excluded.Contain(a)
}

type idle struct {
	address netip.Addr
	freeAt  time.Time
}

func (m *model) of(holder string) (netip.Addr, bool) {
	for a, h := range m.held {
		if h == holder {
			return a, true
		}
	}
	return netip.Addr{}, false
}

func (m *model) neverUsed() []netip.Addr {
	return slices.DeleteFunc(slices.Clone(m.pods), func(a netip.Addr) bool {
		_, held := m.held[a]
		return held || m.skips(a) ||
			slices.ContainsFunc(m.released, func(i idle) bool { return i.address == a })
	})
}

// expected returns the address or the error of a lease without a static address.
func (m *model) expected(now time.Time) (netip.Addr, error) {
	if fresh := m.neverUsed(); len(fresh) > 0 {
		return fresh[0], nil
	}
	released := slices.DeleteFunc(slices.Clone(m.released), func(i idle) bool { return m.skips(i.address) })
	skipped := m.stats(now).Occupied
	if len(released) == 0 {
		return netip.Addr{}, ipam.ErrExhausted{Pool: m.pool.Name, Occupied: skipped}
	}
	first := released[0]
	if first.freeAt.After(now) {
		return netip.Addr{}, ipam.ErrExhausted{
			Pool:     m.pool.Name,
			Cooling:  uint64(len(released)),
			NextFree: first.freeAt,
			Occupied: skipped,
		}
	}
	return first.address, nil
}

func (m *model) grant(a netip.Addr, holder string) {
	m.held[a] = holder
	delete(m.beforeOf, holder)
	for i, r := range m.released {
		if r.address == a {
			m.beforeOf[holder] = &r
			m.released = slices.Delete(m.released, i, i+1)
			return
		}
	}
}

func (m *model) undo(holder string) {
	a, ok := m.of(holder)
	if !ok || m.committed[holder] {
		return
	}
	delete(m.held, a)
	if before := m.beforeOf[holder]; before != nil {
		at := slices.IndexFunc(m.released, func(r idle) bool { return r.freeAt.After(before.freeAt) })
		if at < 0 {
			at = len(m.released)
		}
		m.released = slices.Insert(m.released, at, *before)
	}
}

func (m *model) release(holder string, freeAt time.Time) {
	if a, ok := m.of(holder); ok {
		delete(m.held, a)
		delete(m.committed, holder)
		m.released = append(m.released, idle{a, freeAt})
	}
}

func (m *model) stats(now time.Time) ipam.Stats {
	s := ipam.Stats{Pool: m.pool}
	for _, h := range m.held {
		if m.committed[h] {
			s.Used++
		} else {
			s.Leased++
		}
	}
	for _, r := range m.released {
		if r.freeAt.After(now) && !m.skips(r.address) {
			s.Cooling++
		}
	}
	s.Free = uint64(len(m.pods)) - s.Used - s.Leased - s.Cooling
	for _, a := range m.pods {
		switch unchosen := m.pool.Reserved.Contain(a) || m.pool.Excluded.Contain(a); {
		case m.held[a] != "":
		case unchosen:
			s.Free--
		case m.occupantOf(a) != "":
			s.Occupied++
			s.Free--
		}
	}
	return s
}

// TestAllocatorProperties applies the same operations to an allocator and its model. No address has two holders, the
// counters are correct, the longest idle address is granted first, a cooling or excluded address is granted only as a
// static address, one that a claim holds only to a pod of the claim, and a reserved address, the gateway or one that a
// machine has to no pod.
func TestAllocatorProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := six
		pool.NoGateway = rapid.Bool().Draw(t, "no gateway")
		all := make([]netip.Addr, 0, 7)
		for a := six.Prefix.Addr().Next(); six.Prefix.Contains(a); a = a.Next() {
			all = append(all, a)
		}
		if !pool.NoGateway {
			pool.Gateway = rapid.SampledFrom(append(all, netip.Addr{})).Draw(t, "gateway")
		}
		pods := slices.DeleteFunc(all, func(a netip.Addr) bool { return a == pool.Node() })
		c := newClock()
		a := newAllocator(t, c, pool)
		m := &model{
			clock:     c,
			pool:      pool,
			pods:      pods,
			held:      map[netip.Addr]string{},
			committed: map[string]bool{},
			beforeOf:  map[string]*idle{},
		}
		claim := rapid.SampledFrom([]string{"", "IPAMClaim shop/db-0", "IPAMClaim shop/db-1"})
		holder := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"})
		t.Repeat(map[string]func(*rapid.T){
			"lease": func(t *rapid.T) { m.leaseAny(t, a, holder.Draw(t, "holder")) },
			"lease this one": func(t *rapid.T) {
				r := request(holder.Draw(t, "holder"), rapid.SampledFrom(pods).Draw(t, "address").String())
				r.Claim = claim.Draw(t, "claim")
				m.leaseThis(t, a, r)
			},
			"commit": func(t *rapid.T) {
				h := holder.Draw(t, "holder")
				a.Commit(h)
				if _, ok := m.of(h); ok {
					m.committed[h] = true
				}
			},
			"undo": func(t *rapid.T) {
				h := holder.Draw(t, "holder")
				a.Undo(h)
				m.undo(h)
			},
			"release": func(t *rapid.T) {
				h := holder.Draw(t, "holder")
				c.pass(time.Millisecond) // so that each release has its own time
				a.Release(h)
				m.release(h, c.now.Add(coolDown))
			},
			"take over": func(t *rapid.T) {
				m.takeOver(t, a, holder.Draw(t, "from"), holder.Draw(t, "to"))
			},
			"machines": func(t *rapid.T) {
				by := make(map[netip.Addr]string)
				for _, at := range rapid.SliceOfN(rapid.SampledFrom(pods), 0, 4).Draw(t, "occupied") {
					by[at] = "link eth1 of this node"
				}
				a.Occupy(by)
				m.machines = by
			},
			"claims": func(t *rapid.T) {
				by := make(map[netip.Addr]string)
				for _, at := range rapid.SliceOfN(rapid.SampledFrom(pods), 0, 4).Draw(t, "held") {
					if name := claim.Draw(t, "claim"); name != "" {
						by[at] = name
					}
				}
				a.HoldFor(by)
				m.claims = by
			},
			"reserve": func(t *rapid.T) {
				draw := func(label string) (ranges netaddr.Ranges) {
					for range rapid.IntRange(0, 2).Draw(t, label) {
						first := rapid.IntRange(0, len(pods)-1).Draw(t, "first")
						last := min(len(pods)-1, first+rapid.IntRange(0, 2).Draw(t, "size"))
						ranges = append(ranges, netaddr.Range{First: pods[first], Last: pods[last]})
					}
					return ranges
				}
				p := pool
				p.Reserved = draw("reserved")
				p.Excluded = draw("excluded")
				if refused := a.SetPools([]netaddr.Pool{p}); len(refused) > 0 {
					t.Fatal(refused)
				}
				m.pool = p
			},
			"restart": func(t *rapid.T) {
				after := newAllocator(t, c, m.pool)
				if err := after.Restore(a.Remembered()); err != nil {
					t.Fatal(err)
				}
				after.Occupy(m.machines)
				after.HoldFor(m.claims)
				a = after
				for _, h := range m.held {
					m.committed[h] = true
				}
				clear(m.beforeOf)
			},
			"wait": func(t *rapid.T) { c.pass(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second) },
			"": func(t *rapid.T) {
				if got, want := a.Stats()[0], m.stats(c.now); !reflect.DeepEqual(got, want) {
					t.Fatalf("stats %+v, want %+v", got, want)
				}
				checkLeases(t, a, m)
				for _, fault := range a.Faults() {
					t.Fatal(fault)
				}
			},
		})
	})
}

func (m *model) leaseAny(t *rapid.T, a *ipam.Allocator, holder string) {
	if held, ok := m.of(holder); ok {
		if got := lease(t, a, holder)[0]; got != held.String() {
			t.Fatalf("%s got %s, but holds %s", holder, got, held)
		}
		return
	}
	want, wantErr := m.expected(m.clock.now)
	leases, err := a.Lease(request(holder))
	if !errors.Is(err, wantErr) {
		t.Fatalf("error %v, want %v", err, wantErr)
	}
	if err != nil {
		return
	}
	if leases[0].Address != want {
		t.Fatalf("leased %s, want %s", leases[0].Address, want)
	}
	m.grant(want, holder)
}

func (m *model) leaseThis(t *rapid.T, a *ipam.Allocator, r ipam.Request) {
	holder := r.Holder
	address := r.Addresses[0]
	_, err := a.Lease(r)
	own, holds := m.of(holder)
	other, taken := m.held[address]
	switch {
	case holds && own != address:
		other = holder
		taken = true
		address = own
	case holds:
		taken = false
	}
	if want := m.occupied(address, r.Claim); want != nil && !holds {
		if !errors.Is(err, want) {
			t.Fatalf("error %v for %s, want %v", err, address, want)
		}
		return
	}
	if taken {
		if !errors.Is(err, ipam.ErrInUse{Address: address, Holder: other}) {
			t.Fatalf("error %v for %s, which %s holds", err, address, other)
		}
		return
	}
	if !holds && m.pool.Reserved.Contain(address) {
		if !errors.Is(err, ipam.ErrOutside{Address: address, Pool: m.pool.Name}) {
			t.Fatalf("error %v for %s, which is reserved", err, address)
		}
		return
	}
	if err != nil {
		t.Fatalf("lease of %s for %s: %v", address, holder, err)
	}
	if !holds {
		m.grant(address, holder)
	}
}

// takeOver moves the address of one holder to a holder without an address, or undoes it.
func (m *model) takeOver(t *rapid.T, a *ipam.Allocator, from, to string) {
	address, ok := m.of(from)
	if _, has := m.of(to); !ok || has || !m.committed[from] {
		return
	}
	r := request(to, address.String())
	r.From = []string{from}
	_, err := a.Lease(r)
	if want := m.occupied(address, ""); want != nil {
		if !errors.Is(err, want) {
			t.Fatalf("error %v for %s of %s, want %v", err, address, from, want)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s takes %s from %s: %v", to, address, from, err)
	}
	if rapid.Bool().Draw(t, "undo") {
		a.Undo(to)
		return
	}
	a.Commit(to)
	m.held[address] = to
	m.committed[to] = true
	delete(m.committed, from)
}

func checkLeases(t *rapid.T, a *ipam.Allocator, m *model) {
	held := 0
	for _, l := range a.Leases() {
		if l.State == ipam.Leased || l.State == ipam.Used {
			held++
			if m.held[l.Address] != l.Holder || m.committed[l.Holder] != (l.State == ipam.Used) {
				t.Fatalf("lease %+v, want holder %q", l, m.held[l.Address])
			}
		}
	}
	if held != len(m.held) {
		t.Fatalf("%d leases, want %d", held, len(m.held))
	}
}
