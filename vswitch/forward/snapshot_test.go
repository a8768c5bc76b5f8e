package forward

import (
	"errors"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// reference is a simple routing table: interface index by prefix.
type reference map[netip.Prefix]uint32

// lookup returns the interface of the longest matching prefix, or NoInterface.
func (r reference) lookup(a netip.Addr) uint32 {
	best := -1
	found := NoInterface
	for p, index := range r {
		if p.Contains(a) && p.Bits() > best {
			best = p.Bits()
			found = index
		}
	}
	return found
}

// routeInterface looks up an address in the published snapshot.
func routeInterface(e *Engine, k TableKey, a netip.Addr) uint32 {
	s := e.live.Load()
	if r := s.lookup(s.slot(k), a); r != nil {
		return r.buckets[0].Interface
	}
	return NoInterface
}

func TestTablesMatchTheLastPublish(t *testing.T) {
	b := newBench(t)
	rapid.Check(t, func(r *rapid.T) {
		e := b.engine
		table := TableKey{rapid.SampledFrom([]Family{IP4, IP6}).Draw(r, "family"), 77}
		e.DelTable(table)
		e.AddTable(table)
		e.Publish()
		address := rapid.Custom(func(r *rapid.T) netip.Addr {
			raw := [16]byte{
				0: byte(rapid.IntRange(0, 1).Draw(r, "first")),
				3: byte(rapid.IntRange(0, 3).Draw(r, "last")),
			}
			if table.Family == IP4 {
				return netip.AddrFrom4([4]byte(raw[:4]))
			}
			return netip.AddrFrom16(raw)
		})
		now := reference{}
		published := reference{}
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			a := address.Draw(r, "address")
			p := netip.PrefixFrom(a, rapid.IntRange(0, 32).Draw(r, "bits")).Masked()
			switch rapid.IntRange(0, 3).Draw(r, "what") {
			case 0, 1:
				index := rapid.Uint32Range(1, 9).Draw(r, "interface")
				if err := e.SetRoute(table, p, Route{Paths: []Path{{Interface: index}}}); err != nil {
					r.Fatal(err)
				}
				now[p] = index
			case 2:
				e.DelRoute(table, p)
				delete(now, p)
			case 3:
				e.Publish()
				published = reference{}
				for p, index := range now {
					published[p] = index
				}
			}
			for range 4 {
				a := address.Draw(r, "asked")
				if got, want := routeInterface(e, table, a), published.lookup(a); got != want {
					r.Fatalf("%v has route to %d, want %d", a, int32(got), int32(want))
				}
			}
		}
	})
}

func TestInterfaceChangeKeepsNeighboursAndCounters(t *testing.T) {
	b := newBench(t)
	a := netip.MustParseAddr("10.2.0.1")
	b.engine.live.Load().iface(2).counters[0].rxPackets.Add(5)
	if err := b.engine.SetInterface(2, Interface{MTU: 900}); err != nil {
		t.Fatal(err)
	}
	b.engine.Publish()
	i := b.engine.live.Load().iface(2)
	if n, ok := i.neighbour(a); !ok || n.mac != podMAC || b.engine.Counters(2).RxPackets != 5 || i.mtu != 900 {
		t.Errorf("interface %+v", i)
	}
	b.engine.DelInterface(2)
	b.engine.Publish()
	if err := b.engine.SetNeighbour(2, a, podMAC, true); !errors.Is(err, ErrNoInterface) ||
		b.engine.Counters(2) != (Counters{}) {
		t.Errorf("after DelInterface: %v, %+v", err, b.engine.Counters(2))
	}
	if err := b.engine.SetInterface(MaxInterfaces, Interface{}); !errors.Is(err, ErrNoInterface) {
		t.Errorf("index out of range: %v", err)
	}
}

func TestInvalidRoutesAreRejected(t *testing.T) {
	b := newBench(t)
	many := make([]Path, maxPaths+1)
	for _, c := range []struct {
		rule   string
		prefix string
		route  Route
	}{
		{"no paths", "10.0.0.0/8", Route{}},
		{"too many paths", "10.0.0.0/8", Route{Paths: many}},
		{"unknown action", "10.0.0.0/8", Route{Action: Prohibit + 1}},
		{"other family", "fd00::/8", Route{Action: Drop}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if err := b.engine.SetRoute(TableKey{Family: IP4}, netip.MustParsePrefix(c.prefix), c.route); err == nil {
				t.Error("taken")
			}
		})
	}
}

func TestWeightsAreKeptInProportion(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint8(), 1, maxPaths).Draw(r, "weights")
		paths := make([]Path, len(weights))
		sum := 0
		for i, w := range weights {
			paths[i] = Path{Interface: uint32(i), Weight: w}
			sum += int(max(w, 1))
		}
		share := map[uint32]int{}
		all := spread(paths)
		for _, p := range all {
			share[p.Interface]++
		}
		if len(share) != len(paths) || len(all) > 2*maxPaths {
			r.Fatalf("%d of %d paths in %d buckets", len(share), len(paths), len(all))
		}
		for i, w := range weights {
			exact := float64(max(w, 1))
			if sum > maxPaths {
				exact = exact * maxPaths / float64(sum)
			}
			if d := float64(share[uint32(i)]) - exact; d > 1 || d < -1 {
				r.Fatalf("path %d of weight %d has %d buckets, %f wanted", i, w, share[uint32(i)], exact)
			}
		}
	})
}
