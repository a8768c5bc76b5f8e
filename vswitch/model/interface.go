package model

import (
	"strings"

	"github.com/weftnet/weft/vswitch/frame"
)

// NoIndex is the interface index that names none, or in a dump all.
const NoIndex = ^uint32(0)

// Interface is what the API tells of an interface.
type Interface struct {
	Index   uint32
	Name    string
	DevType string // VPP's device class
	Tag     string
	MAC     frame.MAC
	AdminUp bool
	LinkUp  bool
	LinkMTU int       // the longest payload of a frame
	MTU     [4]uint32 // by protocol: L3, IPv4, IPv6, MPLS; 0 in the last three: the first
}

// InterfaceEvent tells that an interface came, went or changed. As in VPP the flags say only what
// has just become so: an interface that comes up has AdminUp alone, even if its link is up.
type InterfaceEvent struct {
	Index   uint32
	AdminUp bool
	LinkUp  bool
	Deleted bool
}

// iface is an interface with all that hangs on it.
type iface struct {
	Interface
}

func newLocal0() *iface {
	return &iface{Interface: Interface{Name: "local0", DevType: "local"}}
}

// InterfaceFilter chooses interfaces as sw_interface_dump does: a name wins over an index,
// and the indexes 0 and NoIndex mean all.
type InterfaceFilter struct {
	Index  uint32
	ByName bool
	Name   string // part of the name, in any case
}

// Interfaces lists the interfaces that f chooses, by index.
func (m *Model) Interfaces(f InterfaceFilter) []Interface {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !f.ByName && f.Index != NoIndex && f.Index != 0 {
		if i, ok := m.interfaces[f.Index]; ok {
			return []Interface{i.Interface}
		}
		return nil
	}
	var list []Interface
	for _, index := range m.indexesLocked() {
		i := m.interfaces[index]
		if !f.ByName || strings.Contains(strings.ToLower(i.Name), strings.ToLower(f.Name)) {
			list = append(list, i.Interface)
		}
	}
	return list
}
