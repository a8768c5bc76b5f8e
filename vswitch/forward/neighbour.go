package forward

import (
	"net/netip"

	"github.com/gaissmai/bart"

	"github.com/weftnet/weft/vswitch/frame"
)

// neighbour is an entry of an interface's neighbour table, which points to it: it is never changed.
type neighbour struct {
	mac    frame.MAC
	static bool
}

// noNeighbours is the table every interface starts with; persistent tables are never changed in place.
var noNeighbours = new(bart.Table[*neighbour])

// SetNeighbour makes or replaces the entry of an address on an interface. A dynamic entry never replaces a static one:
// such a call changes nothing and is no error.
func (e *Engine) SetNeighbour(index uint32, a netip.Addr, m frame.MAC, static bool) error {
	d := e.edit()
	i := d.iface(index)
	if i == nil {
		return ErrNoInterface
	}
	if old, ok := i.neighbour(a); ok && old.static && !static {
		return nil
	}
	next := *i
	next.neighbours = i.neighbours.InsertPersist(hostPrefix(a), &neighbour{mac: m, static: static})
	d.put(&next)
	return nil
}

// DelNeighbour removes the entry; one that is gone is no error.
func (e *Engine) DelNeighbour(index uint32, a netip.Addr) {
	d := e.edit()
	if i := d.iface(index); i != nil {
		next := *i
		next.neighbours = i.neighbours.DeletePersist(hostPrefix(a))
		d.put(&next)
	}
}

func (i *iface) neighbour(a netip.Addr) (*neighbour, bool) { return i.neighbours.Lookup(a) }

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
