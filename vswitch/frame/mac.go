package frame

import "net"

// MAC is an Ethernet address as a value: comparable, and free of allocation.
type MAC [6]byte

// Broadcast is the Ethernet broadcast address.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// MACOf converts a net.HardwareAddr; false means that it is not six bytes long.
func MACOf(a net.HardwareAddr) (MAC, bool) {
	var m MAC
	if len(a) != len(m) {
		return m, false
	}
	copy(m[:], a)
	return m, true
}

// HardwareAddr returns the address as the net package writes it, in memory of its own.
func (m MAC) HardwareAddr() net.HardwareAddr { return append(net.HardwareAddr(nil), m[:]...) }

// String returns the colon separated form.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// IsZero says that no address is set.
func (m MAC) IsZero() bool { return m == MAC{} }

// IsMulticast says that the address names a group; broadcast is one.
func (m MAC) IsMulticast() bool { return m[0]&1 == 1 }
