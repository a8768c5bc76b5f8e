package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// surroundings are the engine as the slow path sees it. Its own frames go out through the first worker.
type surroundings struct{ e *Engine }

// Interface answers from what is published.
func (s surroundings) Interface(index uint32) (slow.Interface, bool) {
	i := s.e.live.Load().iface(index)
	if i == nil {
		return slow.Interface{}, false
	}
	return slow.Interface{MAC: i.mac, Addresses: i.addresses, LinkLocal: i.linkLocal, Up: i.up, Proxied: s.e.live.Load().proxied(i)}, true
}

// Neighbour answers from what is published.
func (s surroundings) Neighbour(index uint32, a netip.Addr) (frame.MAC, bool, bool) {
	i := s.e.live.Load().iface(index)
	if i == nil {
		return frame.MAC{}, false, false
	}
	n, ok := i.neighbour(a)
	if !ok {
		return frame.MAC{}, false, false
	}
	return n.mac, n.static, true
}

// Learned tells control.
func (s surroundings) Learned(index uint32, a netip.Addr, m frame.MAC) bool {
	return s.e.report(Event{Kind: NeighbourLearned, Interface: index, Addr: a, MAC: m})
}

// Inject gives room for a frame to the first worker.
func (s surroundings) Inject() *slow.Message { return s.e.workers[0].injects.Reserve() }

// Injected wakes it.
func (s surroundings) Injected() {
	s.e.workers[0].injects.Commit()
	s.e.workers[0].bell.Ring()
}
