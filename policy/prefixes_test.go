package policy

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
)

// naiveSubtract is the definition of subtract: it divides each prefix by each of the others.
func naiveSubtract(p netip.Prefix, others []netip.Prefix) []netip.Prefix {
	rest := []netip.Prefix{p}
	for _, o := range others {
		var next []netip.Prefix
		for _, r := range rest {
			next = append(next, naiveWithout(r, o)...)
		}
		rest = next
	}
	return rest
}

func naiveWithout(p, o netip.Prefix) []netip.Prefix {
	switch {
	case !p.Overlaps(o):
		return []netip.Prefix{p}
	case o.Bits() <= p.Bits():
		return nil
	}
	low, high := halves(p)
	return append(naiveWithout(low, o), naiveWithout(high, o)...)
}

// near returns a prefix of one of few addresses, so that prefixes overlap, touch and repeat.
func (d dice) near() netip.Prefix {
	last := byte(d.IntN(16))
	if d.chance(50) {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), 26+d.IntN(7)).Masked()
	}
	a := netip.MustParseAddr("2001:db8::").As16()
	a[15] = last
	return netip.PrefixFrom(netip.AddrFrom16(a), 122+d.IntN(7)).Masked()
}

func TestSubtractIsWhatTheExceptionsLeave(t *testing.T) {
	seed := seedOf(t)
	for n := range 2000 {
		d := newDice(seed, n)
		block := d.near()
		if d.chance(10) {
			block = everywhere[familyIndex(block)]
		}
		except := several(d, 0, 8, d.near)
		want := aggregate(naiveSubtract(block, except))
		got := subtract(block, except)
		if !slices.Equal(got, want) {
			t.Fatalf("%d: %s without %v: %v, want %v", n, block, except, got, want)
		}
	}
}

func familyIndex(p netip.Prefix) int { return familyOf(p.Addr()) }

// A block of a policy has as many exceptions as an object has room for. The work for them grows with their number: an
// exception divides only the prefixes that contain it.
func TestExceptionsDivideOnlyWhatContainsThem(t *testing.T) {
	const count = 10_000
	var except []netip.Prefix
	for n := range count {
		var a [16]byte
		a[0] = 0x20
		binary.BigEndian.PutUint32(a[4:], uint32(n)*2_654_435_761) // scattered
		except = append(except, netip.PrefixFrom(netip.AddrFrom16(a), 64).Masked())
	}
	except = append(except, except...) // repetitions
	holes := within(everywhere[1], except)
	if len(holes) != count {
		t.Fatalf("%d holes, want %d", len(holes), count)
	}
	left := 0
	difference(everywhere[1], holes, func(netip.Prefix) bool {
		left++
		return true
	})
	if most := 64 * count; left > most || left < count {
		t.Errorf("%d prefixes are left, want %d to %d", left, count, most)
	}
	visited := 0
	difference(everywhere[1], holes, func(netip.Prefix) bool {
		visited++
		return visited < 100
	})
	if visited != 100 {
		t.Errorf("%d prefixes are visited after the hundredth was enough", visited)
	}
}
