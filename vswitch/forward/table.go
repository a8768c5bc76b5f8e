package forward

import (
	"errors"
	"net/netip"
)

// Errors that control decides on.
var (
	ErrNoInterface = errors.New("no such interface")
	ErrNoTable     = errors.New("no such table")
	ErrNoPort      = errors.New("no such port")
	ErrPortExists  = errors.New("the interface has a port")
	ErrBadRoute    = errors.New("route cannot be forwarded")
	ErrStopped     = errors.New("the forwarding engine has stopped")
)

// Family is an IP version.
type Family uint8

// The two families.
const (
	IP4 Family = 4
	IP6 Family = 6
)

// FamilyOf returns the family of a, which must be valid; an IPv4-mapped address counts as IPv6.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IP4
	}
	return IP6
}

// TableKey names a VRF's table of one family.
type TableKey struct {
	Family Family
	ID     uint32
}

// Action says what becomes of packets that match a route.
type Action uint8

// The actions. The zero value forwards.
const (
	Forward     Action = iota // over one of the paths
	Local                     // received by the dataplane itself
	Drop                      // silently
	Unreachable               // with ICMP host unreachable (IPv6: address unreachable)
	Prohibit                  // with ICMP administratively prohibited
)

// Path is one way to a destination.
type Path struct {
	// Interface is where packets leave. NoInterface: look up NextHop (if invalid, the destination) in Table.
	Interface uint32
	NextHop   netip.Addr // whose MAC is asked for; invalid: attached, the destination itself is resolved
	Table     uint32     // of the route's family; used with NoInterface only
	Weight    uint8      // share among the route's paths; 0 counts as 1
}

// Route is what a table holds for a prefix.
type Route struct {
	Action Action
	Paths  []Path // of a Forward route, at least one, at most 64; flows spread over them by hash and weight
}

// AddTable makes an empty table; one that exists is kept. Table 0 of both families exists from the start.
func (e *Engine) AddTable(k TableKey) {
	if d := e.edit(); d.slot(k) < 0 {
		d.addTable(k)
	}
}

// DelTable forgets the table and its routes; interfaces still in it find no route.
func (e *Engine) DelTable(k TableKey) {
	if d := e.edit(); d.slot(k) >= 0 {
		d.delTable(k)
	}
}

// SetRoute makes or replaces the route to a prefix. The engine keeps a copy.
func (e *Engine) SetRoute(k TableKey, p netip.Prefix, r Route) error {
	d := e.edit()
	slot := d.slot(k)
	if slot < 0 {
		return ErrNoTable
	}
	if !p.IsValid() || FamilyOf(p.Addr()) != k.Family {
		return ErrBadRoute
	}
	entry, err := newEntry(r)
	if err != nil {
		return err
	}
	if _, known := d.fibs[slot].Get(p.Masked()); !known {
		d.refine(slot, p, 1)
	}
	d.fibs[slot] = d.fibs[slot].InsertPersist(p.Masked(), entry)
	return nil
}

// DelRoute removes the route to exactly this prefix; one that is gone is no error.
func (e *Engine) DelRoute(k TableKey, p netip.Prefix) {
	d := e.edit()
	if slot := d.slot(k); slot >= 0 {
		if _, known := d.fibs[slot].Get(p.Masked()); known {
			d.refine(slot, p, -1)
		}
		d.fibs[slot] = d.fibs[slot].DeletePersist(p.Masked())
	}
}
