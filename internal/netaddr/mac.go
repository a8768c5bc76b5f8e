// Package netaddr has the addresses of networks as values: they are parsed where they enter a process, and compared,
// printed and stored without another conversion.
package netaddr

import (
	"fmt"
	"net"
)

// MAC is an Ethernet address. Unlike net.HardwareAddr it compares with == and is text in JSON. With the zero MAC, the
// owner of the interface chooses one.
type MAC [6]byte

// ParseMAC parses a MAC of six octets in any format of net.ParseMAC.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil {
		return MAC{}, err
	}
	if len(hw) != 6 {
		return MAC{}, fmt.Errorf("MAC %q has %d octets, not 6", s, len(hw))
	}
	return MAC(hw), nil
}

// String returns the octets in hexadecimal, separated by colons; "" for the zero MAC.
func (m MAC) String() string {
	if m.IsZero() {
		return ""
	}
	return net.HardwareAddr(m[:]).String()
}

// IsZero reports whether m is the zero MAC.
func (m MAC) IsZero() bool { return m == MAC{} }

// IsUnicast reports whether m can be the address of one interface.
func (m MAC) IsUnicast() bool { return !m.IsZero() && m[0]&1 == 0 }

// MarshalText makes m text in JSON and YAML.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (m *MAC) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = MAC{}
		return nil
	}
	mac, err := ParseMAC(string(text))
	if err != nil {
		return err
	}
	*m = mac
	return nil
}
