package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// maxLookups bounds the way through tables: control may have made a circle of them.
const maxLookups = 4

// hasher is a packet that knows its flow.
type hasher interface {
	frame.IPv4 | frame.IPv6
	Hash() uint32
}

// find follows the routes to destination from table slot on: to the way out and the address whose MAC is needed there. A
// nil out means that stop says what becomes of the packet.
func find[P hasher](s *snapshot, slot int, destination netip.Addr, p P) (out *iface, target netip.Addr, stop verdict) {
	family := FamilyOf(destination)
	for range maxLookups {
		e := s.lookup(slot, destination)
		if e == nil {
			return nil, destination, noRoute(family)
		}
		if e.action != Forward {
			return nil, destination, stops[e.action]
		}
		path := &e.buckets[0]
		if len(e.buckets) > 1 {
			path = &e.buckets[p.Hash()%uint32(len(e.buckets))]
		}
		if path.NextHop.IsValid() {
			destination = path.NextHop
		}
		if path.Interface == NoInterface {
			slot = s.slot(TableKey{family, path.Table})
			continue
		}
		out = s.iface(path.Interface)
		if out == nil || !out.up {
			return nil, destination, verdict{drop: dropOutputDown}
		}
		return out, destination, verdict{}
	}
	return nil, destination, verdict{drop: dropRouteLoop}
}

// onlyWay is find for all packets to a destination; nil: they are not forwarded, or spread over several ways. One way is that of
// all destinations with the same route.
func (s *snapshot) onlyWay(slot int, destination netip.Addr) (out *iface, target netip.Addr, one bool) {
	family := FamilyOf(destination)
	for lookups := range maxLookups {
		e := s.lookup(slot, destination)
		if e == nil || e.action != Forward || len(e.buckets) != 1 {
			return nil, destination, one || lookups == 0
		}
		path := &e.buckets[0]
		if path.NextHop.IsValid() {
			destination, one = path.NextHop, one || lookups == 0
		}
		if path.Interface != NoInterface {
			if out = s.iface(path.Interface); out != nil && !out.up {
				out = nil
			}
			return out, destination, one
		}
		slot = s.slot(TableKey{family, path.Table})
	}
	return nil, destination, one
}

func noRoute(f Family) verdict {
	if f == IP4 {
		return verdict{drop: dropNoRoute4, punt: slow.NoRoute}
	}
	return verdict{drop: dropNoRoute6, punt: slow.NoRoute}
}

// stops are the ends that routes name themselves.
var stops = [...]verdict{
	Local:       {punt: slow.Received},
	Drop:        {drop: dropRoute},
	Unreachable: {drop: dropUnreachable, punt: slow.RouteUnreachable},
	Prohibit:    {drop: dropProhibited, punt: slow.Prohibited},
}

// lookup finds the route with the longest prefix, or nil.
func (s *snapshot) lookup(slot int, a netip.Addr) *entry {
	if slot < 0 || s.fibs[slot] == nil {
		return nil
	}
	e, _ := s.fibs[slot].Lookup(a)
	return e
}

// rewrite gives the frame its new Ethernet addresses, or asks for the neighbour's.
func (w *worker) rewrite(out *iface, target netip.Addr, b *frame.Buffer) verdict {
	if out.bare {
		frame.Ethernet(b.Bytes()).Rewrite(frame.MAC{}, frame.MAC{})
		return verdict{out: out}
	}
	n, ok := out.neighbour(target)
	if !ok {
		w.unresolved = target
		return verdict{punt: slow.Unresolved, out: out}
	}
	frame.Ethernet(b.Bytes()).Rewrite(n.mac, out.mac)
	return verdict{out: out}
}
