package model

import (
	"crypto/rand"
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// ip6 is the IPv6 state of an interface.
type ip6 struct {
	linkLocal netip.Addr // valid if IPv6 is enabled
	locks     int        // number of IPv6 addresses and calls of IP6.Enable
}

func (s *ip6) on() bool { return s.linkLocal.IsValid() }

// enableIP6 adds a lock. The first lock sets the link-local address, which depends on the MAC address if a is invalid.
func (i *iface) enableIP6(a netip.Addr) {
	i.ip6.locks++
	if i.ip6.on() {
		return
	}
	mac := i.MAC
	if !i.ethernet {
		_, _ = rand.Read(mac[:]) // never fails
	}
	if !a.IsValid() {
		a = linkLocalOf(mac)
	}
	i.ip6.linkLocal = a
}

// disable removes a lock. The last one disables IPv6.
func (s *ip6) disable() {
	if s.locks = max(s.locks-1, 0); s.locks == 0 {
		s.linkLocal = netip.Addr{}
	}
}

// IP6 enables IPv6 on interfaces.
type IP6 struct {
	*barrier
	interfaces *Interfaces
}

// Enable adds an IPv6 lock to an interface. If IPv6 is enabled it also adds the lock but returns ValueExist, as VPP
// does.
func (v6 *IP6) Enable(index uint32) error {
	return v6.interfaces.with(index, func(i *iface) error {
		on := i.ip6.on()
		i.enableIP6(netip.Addr{})
		if on {
			return ValueExist
		}
		v6.interfaces.syncLocked(i)
		return nil
	})
}

// Disable removes an IPv6 lock.
func (v6 *IP6) Disable(index uint32) error {
	return v6.interfaces.with(index, func(i *iface) error {
		if !i.ip6.on() {
			return IP6NotEnabled
		}
		i.ip6.disable()
		v6.interfaces.syncLocked(i)
		return nil
	})
}

// SetLinkLocal sets the link-local address of an interface, and enables IPv6 if it is disabled.
func (v6 *IP6) SetLinkLocal(index uint32, a netip.Addr) error {
	return v6.interfaces.with(index, func(i *iface) error { return v6.setLinkLocalLocked(i, a) })
}

// LinkLocal returns the link-local address of an interface.
func (v6 *IP6) LinkLocal(index uint32) (a netip.Addr, err error) {
	err = v6.interfaces.with(index, func(i *iface) error {
		if a = i.ip6.linkLocal; !a.IsValid() {
			return IP6NotEnabled
		}
		return nil
	})
	return a, err
}

func (v6 *IP6) setLinkLocalLocked(i *iface, a netip.Addr) error {
	if !isLinkLocal(a) {
		return InvalidValue
	}
	if i.ip6.on() {
		i.ip6.linkLocal = a
	} else {
		i.enableIP6(a)
	}
	v6.interfaces.syncLocked(i)
	return nil
}

// linkLocalOf returns the link-local address with the modified EUI-64 of a MAC address (RFC 4291).
func linkLocalOf(mac frame.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe,
		13: mac[3], 14: mac[4], 15: mac[5]})
}

// syncLocked writes the interface, and the unnumbered interfaces that use its addresses, to the engine.
func (as *Addresses) syncLocked(i *iface) {
	as.interfaces.syncLocked(i)
	for _, other := range as.interfaces.byIndex {
		if other.donor == i.Index && other != i {
			as.interfaces.syncLocked(other)
		}
	}
}
