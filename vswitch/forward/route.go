package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// maxLookups bounds the way through tables: control may have made a circle of them.
const maxLookups = 4

// hop is where a packet goes next; where out is nil, stop says why it does not.
type hop struct {
	stop   verdict
	out    *iface
	target netip.Addr // whose MAC is needed
}

// hasher is a packet that knows its flow.
type hasher interface {
	frame.IPv4 | frame.IPv6
	Hash() uint32
}

// find follows the routes to destination from table slot on.
func find[P hasher](s *snapshot, slot int, destination netip.Addr, p P) hop {
	family := FamilyOf(destination)
	for range maxLookups {
		e := s.lookup(slot, destination)
		if e == nil {
			return noRoute(family)
		}
		if e.action != Forward {
			return hop{stop: stops[e.action]}
		}
		path := &e.buckets[0]
		if len(e.buckets) > 1 {
			path = &e.buckets[p.Hash()%uint32(len(e.buckets))]
		}
		target := destination
		if path.NextHop.IsValid() {
			target = path.NextHop
		}
		if path.Interface != NoInterface {
			return s.leave(path.Interface, target)
		}
		slot, destination = s.slot(TableKey{family, path.Table}), target
	}
	return hop{stop: verdict{drop: dropRouteLoop}}
}

func noRoute(f Family) hop {
	if f == IP4 {
		return hop{stop: verdict{drop: dropNoRoute4, punt: slow.NoRoute}}
	}
	return hop{stop: verdict{drop: dropNoRoute6, punt: slow.NoRoute}}
}

// stops are the ends that routes name themselves.
var stops = [...]verdict{
	Local:       {punt: slow.Received},
	Drop:        {drop: dropRoute},
	Unreachable: {drop: dropUnreachable, punt: slow.HostUnreached},
	Prohibit:    {drop: dropProhibited, punt: slow.Prohibited},
}

// lookup finds the longest prefix. bart's multibit trie (stride 8, popcount compressed) answers in 10 to 25 ns with a few
// hundred routes (BenchmarkLookup), shares all but the touched nodes between versions, and so makes a published change a
// matter of microseconds; a 16-8-8 trie would save some 10 ns of a path that costs hundreds, and copy 512 KiB a change.
func (s *snapshot) lookup(slot int, a netip.Addr) *entry {
	if slot < 0 || s.fibs[slot] == nil {
		return nil
	}
	e, _ := s.fibs[slot].Lookup(a)
	return e
}

// leave checks the way out.
func (s *snapshot) leave(index uint32, target netip.Addr) hop {
	out := s.iface(index)
	if out == nil || !out.up {
		return hop{stop: verdict{drop: dropOutputDown}}
	}
	return hop{out: out, target: target}
}

// rewrite gives the frame its new Ethernet addresses, or asks for the neighbour's.
func rewrite(h hop, b *frame.Buffer) verdict {
	n, ok := h.out.neighbour(h.target)
	if !ok {
		return verdict{punt: slow.Unresolved, out: h.out, target: h.target}
	}
	frame.Ethernet(b.Bytes()).Rewrite(n.mac, h.out.mac)
	return verdict{out: h.out}
}
