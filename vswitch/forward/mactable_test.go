package forward

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

func TestMACTableMatchesAMap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		table := newMACTable()
		model := map[macKey]macEntry{}
		if rapid.Bool().Draw(r, "at the end") {
			table.sweepAt = len(table.entries) - 3
		}
		key := rapid.Custom(func(r *rapid.T) macKey {
			m := frame.MAC{2, 0, 0, 0, 0, rapid.ByteRange(0, 40).Draw(r, "mac")}
			return table.crowded(macKeyOf(rapid.Uint16Range(1, 3).Draw(r, "bridge"), m))
		})
		for range rapid.IntRange(1, 200).Draw(r, "steps") {
			table.step(r, model, key.Draw(r, "key"))
			table.compare(r, model)
		}
	})
}

// step applies a random operation to the table and the model.
func (t *macTable) step(r *rapid.T, model map[macKey]macEntry, k macKey) {
	switch rapid.IntRange(0, 4).Draw(r, "what") {
	case 0, 1:
		e := macEntry{k, rapid.Uint32Range(1, 4).Draw(r, "interface"), 0}
		if old := t.find(k); old != nil {
			t.move(old, e.out)
		} else if !t.add(e, maxLearnedOn) {
			r.Fatal("no room")
		}
		model[k] = e
	case 2:
		_, was := model[k]
		if t.remove(k) != was {
			r.Fatalf("remove %x did not return %v", k, was)
		}
		delete(model, k)
	case 3:
		goes := func(e *macEntry) bool { return e.out == k.out() }
		t.sweep(len(t.entries), goes)
		maps.DeleteFunc(model, func(_ macKey, e macEntry) bool { return goes(&e) })
	}
}

// crowded returns a key that hashes to one of the first or last entries, so that probe sequences are long and wrap
// around.
func (t *macTable) crowded(k macKey) macKey {
	for ; ; k += 1 << 16 {
		if p := t.hash(k); p < 4 || p >= len(t.entries)-4 {
			return k
		}
	}
}

// out is the test's interface of a key.
func (k macKey) out() uint32 { return uint32(k)%4 + 1 }

func (t *macTable) compare(r *rapid.T, model map[macKey]macEntry) {
	n := 0
	byBridge := map[uint16]int32{}
	byOut := map[uint32]int32{}
	for i := range t.entries {
		if t.entries[i].key != 0 {
			n++
		}
	}
	for k, want := range model {
		byBridge[k.slot()]++
		byOut[want.out]++
		if got := t.find(k); got == nil || *got != want {
			r.Fatalf("%x: %+v, want %+v", k, got, want)
		}
	}
	if n != len(model) || t.count != n {
		r.Fatalf("%d entries and a count of %d, want %d", n, t.count, len(model))
	}
	if !maps.Equal(t.byOut, byOut) {
		r.Fatalf("the interfaces have %v, want %v", t.byOut, byOut)
	}
	for slot, want := range byBridge {
		if t.byBridge[slot] != want {
			r.Fatalf("bridge %d has a count of %d, want %d", slot, t.byBridge[slot], want)
		}
	}
}

func TestMACKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		slot := rapid.Uint16().Draw(r, "slot")
		m := frame.MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(r, "mac"))
		if k := macKeyOf(slot, m); k.slot() != slot || k.mac() != m {
			r.Fatalf("%d %v became %d %v", slot, m, k.slot(), k.mac())
		}
	})
}

// TestBridgeMatchesAModel compares a bridge domain with a simple model.
func TestBridgeMatchesAModel(t *testing.T) {
	s := newSegment(t)
	rapid.Check(t, func(r *rapid.T) {
		s.serve(func() { s.engine.DelBridge(1) })
		b := aged()
		s.change(b)
		type sight struct{ on, at uint32 }
		seen := map[frame.MAC]sight{}
		for range rapid.IntRange(1, 60).Draw(r, "frames") {
			s.now += rapid.SampledFrom([]uint32{0, 0, 1, 7, 30, 61}).Draw(r, "later")
			on := rapid.Uint32Range(1, 3).Draw(r, "on")
			from := host(rapid.ByteRange(1, 4).Draw(r, "from"))
			to := host(rapid.ByteRange(1, 4).Draw(r, "to"))
			seen[from] = sight{on, s.now}
			want := []uint32{}
			known, ok := seen[to]
			ok = ok && s.now-known.at < 60
			for _, m := range b.Members {
				if m.Interface != on && (!ok || known.on == m.Interface) {
					want = append(want, m.Interface)
				}
			}
			if got := s.reached(on, from, to); len(got) != len(want) ||
				len(got) > 0 && (got[0] != want[0] || got[len(got)-1] != want[len(want)-1]) {
				r.Fatalf("at %d, %v > %v on %d reached %v, want %v", s.now, from, to, on, got, want)
			}
		}
	})
}
