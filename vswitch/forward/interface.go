package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// NoInterface is the interface index that names none.
const NoInterface = ^uint32(0)

// MaxInterfaces bounds interface indexes: they are positions in a dense array.
const MaxInterfaces = 1 << 16

// Interface is the layer 3 state of an interface. A loopback is an interface without a port.
type Interface struct {
	Up  bool      // admin state: a down interface receives and sends nothing
	MTU int       // layer 3: the longest IP packet sent; 0: 1500
	MAC frame.MAC // the dataplane's end: received unicast frames must carry it, sent frames do

	Table4, Table6 uint32 // the VRFs packets received here are looked up in

	// Addresses are answered by ARP and ND, and are the sources of ICMP errors and solicitations, first of a
	// family first. An unnumbered interface has its donor's. As in VPP an interface without an IPv4 address takes
	// no IPv4. Receiving packets for them is the routes' matter: control sets a Local route for each.
	Addresses []netip.Addr

	LinkLocal  netip.Addr // IPv6 link-local address; answered by ND, and received without a route
	IP6Enabled bool       // else IPv6 frames are dropped

	Bare bool // carries IP packets without Ethernet headers: it has no neighbours to resolve, and MAC must be zero

	Senders *MACIPFilter // judges what is received, in a bridge domain too, before anything else; nil: all may send

	ACL *ACLFilter // decides about received IP packets that Senders admits, in a bridge domain too; nil: all pass

	ProxyARP bool // requests for the addresses of the ranges of SetProxies are answered here, too
	ProxyND  bool // solicitations for any address are answered here

	Redirect4, Redirect6 *Redirect // of packets for the dataplane itself, by family; nil: none

	Tunnel *Tunnel // nil: none
}

// SetInterface makes the interface or changes all of it; neighbours and counters stay.
// Indexes of MaxInterfaces and above are refused with ErrNoInterface.
func (e *Engine) SetInterface(index uint32, i Interface) error {
	if index >= MaxInterfaces {
		return ErrNoInterface
	}
	d := e.edit()
	next := &iface{index: index, neighbours: noNeighbours}
	if old := d.iface(index); old != nil {
		*next = *old
	} else {
		next.counters, next.floods = newCounterSet(len(e.workers)), newFloodBudgets(e.workers)
	}
	next.set(i)
	next.fib4, next.fib6 = d.slot(TableKey{IP4, i.Table4}), d.slot(TableKey{IP6, i.Table6})
	d.setTunnel(next, i.Tunnel)
	d.put(next)
	return nil
}

// DelInterface forgets the interface, its neighbours and its counters. Its port, if any, is closed by ClosePort.
func (e *Engine) DelInterface(index uint32) {
	d := e.edit()
	if i := d.iface(index); i != nil {
		gone := *i
		d.setTunnel(&gone, nil)
		d.interfaces[index] = nil
	}
}
