package wire

import (
	"fmt"
	"net"
)

// MAC is an Ethernet address. Unlike net.HardwareAddr it compares with == and reads as text in JSON.
// The zero MAC means "let the owner of the interface choose".
type MAC [6]byte

// ParseMAC reads a MAC of six octets in any of the forms that net.ParseMAC knows.
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

// String gives the six octets in hexadecimal, separated by colons; "" for the zero MAC.
func (m MAC) String() string {
	if m.IsZero() {
		return ""
	}
	return net.HardwareAddr(m[:]).String()
}

// IsZero reports whether no MAC was chosen.
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
