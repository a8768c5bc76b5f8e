package model

import (
	"maps"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// ACL is an IP access control list, with the fields of acl_add_replace.
type ACL struct {
	Tag   string
	Rules []forward.ACLRule
}

// ACLDetails holds the fields of acl_details.
type ACLDetails struct {
	ACL
	Index uint32
}

// acl is an ACL with its compiled form.
type acl struct {
	ACL
	filter *forward.ACLFilter
}

// maxACLs bounds the ACLs, and maxACLsOfInterface those of an interface; the message that sets the latter has a count of 8 bits.
const (
	maxACLs            = 1 << 12
	maxACLsOfInterface = 255
)

// AddACL makes an ACL and returns its index, which is not used again soon.
func (m *Model) AddACL(a ACL) (uint32, error) {
	defer m.change()()
	if err := checkACL(a); err != nil {
		return NoIndex, err
	}
	if len(m.acls) >= maxACLs {
		return NoIndex, LimitExceeded
	}
	index := m.nextACL
	for m.acls[index] != nil || index == NoIndex {
		index++
	}
	m.nextACL = index + 1
	m.acls[index] = newACL(a)
	return index, nil
}

// ReplaceACL changes an ACL at once, also for the interfaces that have it.
func (m *Model) ReplaceACL(index uint32, a ACL) error {
	defer m.change()()
	if err := checkACL(a); err != nil {
		return err
	}
	if m.acls[index] == nil {
		return NoSuchEntry
	}
	m.acls[index] = newACL(a)
	for _, i := range m.interfaces {
		if slices.Contains(i.acls, index) {
			m.setACLsLocked(i, i.acls)
		}
	}
	return nil
}

// DeleteACL removes an ACL that no interface has.
func (m *Model) DeleteACL(index uint32) error {
	defer m.change()()
	if m.acls[index] == nil {
		return NoSuchEntry
	}
	for _, i := range m.interfaces {
		if slices.Contains(i.acls, index) {
			return ACLInUseInbound
		}
	}
	delete(m.acls, index)
	return nil
}

// SetACLs replaces the ACLs that decide about what an interface receives, one after the other; none: all pass.
func (m *Model) SetACLs(index uint32, acls []uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if len(acls) > maxACLsOfInterface {
		return InvalidValue
	}
	for n, a := range acls {
		if m.acls[a] == nil {
			return NoSuchEntry
		}
		if slices.Contains(acls[:n], a) {
			return EntryAlreadyExists
		}
	}
	m.setACLsLocked(i, slices.Clone(acls))
	return nil
}

// setACLsLocked gives the packet path the rules of all ACLs, in order. The filter of a single ACL is shared.
func (m *Model) setACLsLocked(i *iface, acls []uint32) {
	i.acls = acls
	switch len(acls) {
	case 0:
		i.filter = nil
	case 1:
		i.filter = m.acls[acls[0]].filter
	default:
		var rules []forward.ACLRule
		for _, a := range acls {
			rules = append(rules, m.acls[a].Rules...)
		}
		i.filter = forward.NewACLFilter(rules)
	}
	m.setEngineLocked(i)
}

// ACLs lists the ACL of that index, or all for NoIndex.
func (m *Model) ACLs(index uint32) []ACLDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []ACLDetails
	for _, n := range slices.Sorted(maps.Keys(m.acls)) {
		if index == NoIndex || index == n {
			list = append(list, ACLDetails{ACL: m.acls[n].ACL, Index: n})
		}
	}
	return list
}

// InterfaceACLs holds the fields of acl_interface_list_details: the ACLs of an interface, which may be none.
type InterfaceACLs struct {
	Interface uint32
	Input     []uint32
}

// InterfaceACLs lists the ACLs of that interface, or of all for NoIndex.
func (m *Model) InterfaceACLs(index uint32) []InterfaceACLs {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []InterfaceACLs
	for _, n := range m.indexesLocked() {
		if index == NoIndex || index == n {
			list = append(list, InterfaceACLs{Interface: n, Input: slices.Clone(m.interfaces[n].acls)})
		}
	}
	return list
}

func newACL(a ACL) *acl {
	a.Rules = slices.Clone(a.Rules)
	return &acl{ACL: a, filter: forward.NewACLFilter(a.Rules)}
}

// checkACL refuses what VPP refuses.
func checkACL(a ACL) error {
	if len(a.Tag) > maxTag {
		return InvalidValue
	}
	for _, r := range a.Rules {
		switch {
		case !r.Source.IsValid():
			return InvalidSrcAddress
		case !r.Destination.IsValid():
			return InvalidDstAddress
		case r.Source.Addr().Is4() != r.Destination.Addr().Is4():
			return InvalidSrcAddress
		case r.Sources.First > r.Sources.Last || r.Destinations.First > r.Destinations.Last:
			return InvalidValue2
		}
	}
	return nil
}

// MACIPACL is a list of senders, in macip_acl_add's words.
type MACIPACL struct {
	Tag   string
	Rules []forward.MACIPRule
}

// MACIPDetails is what macip_acl_details tells.
type MACIPDetails struct {
	MACIPACL
	Index uint32
}

// macip is a list, and what the packet path makes of it.
type macip struct {
	MACIPACL
	filter *forward.MACIPFilter
}

// maxMACIPs bounds the lists: each costs memory as long as it is there.
const maxMACIPs = 1 << 16

// AddMACIP makes a list and returns its index, which is not used again soon.
func (m *Model) AddMACIP(a MACIPACL) (uint32, error) {
	defer m.change()()
	if err := checkMACIP(a); err != nil {
		return NoIndex, err
	}
	if len(m.macips) >= maxMACIPs {
		return NoIndex, LimitExceeded
	}
	index := m.nextMACIP
	for m.macips[index] != nil || index == NoIndex {
		index++
	}
	m.nextMACIP = index + 1
	m.macips[index] = newMACIP(a)
	return index, nil
}

// ReplaceMACIP changes a list, for the interfaces that it judges, too, at once.
func (m *Model) ReplaceMACIP(index uint32, a MACIPACL) error {
	defer m.change()()
	if err := checkMACIP(a); err != nil {
		return err
	}
	if m.macips[index] == nil {
		return NoSuchEntry
	}
	m.macips[index] = newMACIP(a)
	m.reviewMACIPLocked(index)
	return nil
}

// DeleteMACIP removes a list. As in VPP the interfaces that it judged let everything in from then on.
func (m *Model) DeleteMACIP(index uint32) error {
	defer m.change()()
	if m.macips[index] == nil {
		return NoSuchEntry
	}
	delete(m.macips, index)
	m.reviewMACIPLocked(index)
	return nil
}

// ApplyMACIP lets a list judge what an interface receives, in the place of another one.
func (m *Model) ApplyMACIP(index, list uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if m.macips[list] == nil {
		return NoSuchEntry
	}
	i.macip = list
	m.setEngineLocked(i)
	return nil
}

// UnapplyMACIP ends that, whichever list it is.
func (m *Model) UnapplyMACIP(index uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	if i.macip == NoIndex {
		return NoSuchEntry
	}
	i.macip = NoIndex
	m.setEngineLocked(i)
	return nil
}

// MACIPs lists the list of that index, or all for NoIndex.
func (m *Model) MACIPs(index uint32) []MACIPDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []MACIPDetails
	for _, n := range slices.Sorted(maps.Keys(m.macips)) {
		if index == NoIndex || index == n {
			list = append(list, MACIPDetails{MACIPACL: m.macips[n].MACIPACL, Index: n})
		}
	}
	return list
}

// AppliedMACIPs returns the list that judges an interface by the interface's index: of that one if it has any, or of all
// that have for NoIndex.
func (m *Model) AppliedMACIPs(index uint32) map[uint32]uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	applied := map[uint32]uint32{}
	for n, i := range m.interfaces {
		if i.macip != NoIndex && (index == NoIndex || index == n) {
			applied[n] = i.macip
		}
	}
	return applied
}

func newMACIP(a MACIPACL) *macip {
	a.Rules = slices.Clone(a.Rules)
	return &macip{MACIPACL: a, filter: forward.NewMACIPFilter(a.Rules)}
}

// checkMACIP refuses what VPP would read past: a tag without an end, and prefixes longer than their addresses.
func checkMACIP(a MACIPACL) error {
	if len(a.Tag) > maxTag {
		return InvalidValue
	}
	for _, r := range a.Rules {
		if !r.Prefix.IsValid() {
			return InvalidValue
		}
	}
	return nil
}

// reviewMACIPLocked tells the packet path of a list that has changed or gone.
func (m *Model) reviewMACIPLocked(list uint32) {
	for _, i := range m.interfaces {
		if i.macip != list {
			continue
		}
		if m.macips[list] == nil {
			i.macip = NoIndex
		}
		m.setEngineLocked(i)
	}
}

// sendersLocked is the filter that judges an interface, or nil.
func (m *Model) sendersLocked(i *iface) *forward.MACIPFilter {
	if a := m.macips[i.macip]; a != nil {
		return a.filter
	}
	return nil
}
