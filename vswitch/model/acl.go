package model

import (
	"maps"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// ACL is an access control list with rules of type R.
type ACL[R any] struct {
	Tag   string
	Rules []R
}

// ACLDetails is an ACL with its index.
type ACLDetails[R any] struct {
	ACL[R]
	Index uint32
}

// IPACL holds the fields of acl_add_replace.
type IPACL = ACL[forward.ACLRule]

// IPACLDetails holds the fields of acl_details.
type IPACLDetails = ACLDetails[forward.ACLRule]

// MACIPACL holds the fields of macip_acl_add.
type MACIPACL = ACL[forward.MACIPRule]

// MACIPDetails holds the fields of macip_acl_details.
type MACIPDetails = ACLDetails[forward.MACIPRule]

// compiledACL is an ACL with its filter of type F for the packet path.
type compiledACL[R, F any] struct {
	ACL[R]
	compiled *F
}

// aclSet holds all ACLs of one kind. They do not depend on interfaces.
type aclSet[R, F any] struct {
	limit   int // maximum number of ACLs
	check   func(R) error
	compile func(index uint32, a ACL[R]) *F
	acls    map[uint32]*compiledACL[R, F]
	next    uint32
}

func newACLSet[R, F any](limit int, check func(R) error, compile func(index uint32, a ACL[R]) *F) aclSet[R, F] {
	return aclSet[R, F]{limit: limit, check: check, compile: compile, acls: map[uint32]*compiledACL[R, F]{}}
}

// add adds an ACL and returns its index. Indexes are not reused soon.
func (s *aclSet[R, F]) add(a ACL[R]) (uint32, error) {
	if err := s.validate(a); err != nil {
		return NoIndex, err
	}
	if len(s.acls) >= s.limit {
		return NoIndex, LimitExceeded
	}
	index := s.next
	for s.acls[index] != nil || index == NoIndex {
		index++
	}
	s.next = index + 1
	s.put(index, a)
	return index, nil
}

// replace replaces an existing ACL.
func (s *aclSet[R, F]) replace(index uint32, a ACL[R]) error {
	if err := s.validate(a); err != nil {
		return err
	}
	if s.acls[index] == nil {
		return NoSuchEntry
	}
	s.put(index, a)
	return nil
}

func (s *aclSet[R, F]) put(index uint32, a ACL[R]) {
	a.Rules = slices.Clone(a.Rules)
	s.acls[index] = &compiledACL[R, F]{ACL: a, compiled: s.compile(index, a)}
}

// validate rejects the ACLs that VPP rejects. A tag needs space for its terminating NUL.
func (s *aclSet[R, F]) validate(a ACL[R]) error {
	if len(a.Tag) > maxTag {
		return InvalidValue
	}
	for _, r := range a.Rules {
		if err := s.check(r); err != nil {
			return err
		}
	}
	return nil
}

// filter returns the filter of an ACL, or nil if the ACL does not exist.
func (s *aclSet[R, F]) filter(index uint32) *F {
	if a := s.acls[index]; a != nil {
		return a.compiled
	}
	return nil
}

// list returns the ACL of the given index, or all for NoIndex.
func (s *aclSet[R, F]) list(index uint32) []ACLDetails[R] {
	var list []ACLDetails[R]
	for _, n := range slices.Sorted(maps.Keys(s.acls)) {
		if index == NoIndex || index == n {
			list = append(list, ACLDetails[R]{ACL: s.acls[n].ACL, Index: n})
		}
	}
	return list
}

func checkRule(r forward.ACLRule) error {
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
	return nil
}

func checkMACIPRule(r forward.MACIPRule) error {
	if !r.Prefix.IsValid() {
		return InvalidValue
	}
	return nil
}

// maxACLsOfInterface is the maximum of the 8-bit count in acl_interface_set_acl_list.
const maxACLsOfInterface = 255

// AddACL adds an ACL and returns its index. Indexes are not reused soon.
func (m *Model) AddACL(a IPACL) (uint32, error) {
	defer m.change()()
	return m.acls.add(a)
}

// ReplaceACL replaces an ACL. The change affects the interfaces of the ACL at once.
func (m *Model) ReplaceACL(index uint32, a IPACL) error {
	defer m.change()()
	if err := m.acls.replace(index, a); err != nil {
		return err
	}
	for _, i := range m.Interfaces.byIndex {
		if slices.Contains(i.acls.Input, index) || slices.Contains(i.acls.Output, index) {
			m.Interfaces.syncLocked(i)
		}
	}
	return nil
}

// DeleteACL deletes an ACL that no interface uses.
func (m *Model) DeleteACL(index uint32) error {
	defer m.change()()
	if m.acls.acls[index] == nil {
		return NoSuchEntry
	}
	for _, i := range m.Interfaces.byIndex {
		switch {
		case slices.Contains(i.acls.Input, index):
			return ACLInUseInbound
		case slices.Contains(i.acls.Output, index):
			return ACLInUseOutbound
		}
	}
	delete(m.acls.acls, index)
	return nil
}

// ACLLists are the indexes of the ACLs of an interface, which apply in order.
type ACLLists struct{ Input, Output []uint32 }

func (l ACLLists) clone() ACLLists { return ACLLists{slices.Clone(l.Input), slices.Clone(l.Output)} }

// SetACLs sets the ACLs of an interface at once. A direction without ACLs permits all packets.
func (m *Model) SetACLs(index uint32, lists ACLLists) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if len(lists.Input)+len(lists.Output) > maxACLsOfInterface {
			return InvalidValue
		}
		for _, acls := range [][]uint32{lists.Input, lists.Output} {
			for n, a := range acls {
				if m.acls.acls[a] == nil {
					return NoSuchEntry
				}
				if slices.Contains(acls[:n], a) {
					return EntryAlreadyExists
				}
			}
		}
		i.acls = lists.clone()
		m.Interfaces.syncLocked(i)
		return nil
	})
}

// accessListsLocked returns the ACLs of an interface for the packet path. Interfaces share the filters of ACLs.
func (m *Model) accessListsLocked(i *iface) forward.AccessLists {
	a := forward.AccessLists{Count: m.countACLs}
	for _, index := range i.acls.Input {
		a.Input = append(a.Input, m.acls.filter(index))
	}
	for _, index := range i.acls.Output {
		a.Output = append(a.Output, m.acls.filter(index))
	}
	return a
}

// CountACLs makes the rules of ACLs count packets, or stop counting.
func (m *Model) CountACLs(on bool) {
	defer m.change()()
	m.countACLs = on
	for _, i := range m.Interfaces.byIndex {
		m.Interfaces.syncLocked(i)
	}
}

// ACLHits holds the counters of the rules of an ACL, by rule.
type ACLHits struct {
	Index uint32
	Rules []forward.RuleHits
}

// ACLHits lists the counters of all ACLs, by index; none unless CountACLs is on.
func (m *Model) ACLHits() []ACLHits {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []ACLHits
	if !m.countACLs {
		return nil
	}
	for _, index := range slices.Sorted(maps.Keys(m.acls.acls)) {
		all = append(all, ACLHits{index, m.acls.filter(index).Hits()})
	}
	return all
}

// ACLs lists the ACL of the given index, or all for NoIndex.
func (m *Model) ACLs(index uint32) []IPACLDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acls.list(index)
}

// InterfaceACLs holds the fields of acl_interface_list_details.
type InterfaceACLs struct {
	Interface uint32
	ACLLists
}

// InterfaceACLs lists the ACLs of the given interface, or of all for NoIndex.
func (m *Model) InterfaceACLs(index uint32) []InterfaceACLs {
	return listInterfaces(m.Interfaces, index, func(i *iface) (InterfaceACLs, bool) {
		return InterfaceACLs{i.Index, i.acls.clone()}, true
	})
}

// AddMACIP adds a MACIP ACL and returns its index. Indexes are not reused soon.
func (m *Model) AddMACIP(a MACIPACL) (uint32, error) {
	defer m.change()()
	return m.macips.add(a)
}

// ReplaceMACIP replaces a MACIP ACL. The change affects the interfaces of the ACL at once.
func (m *Model) ReplaceMACIP(index uint32, a MACIPACL) error {
	defer m.change()()
	if err := m.macips.replace(index, a); err != nil {
		return err
	}
	m.setMACIPLocked(index, index)
	return nil
}

// DeleteMACIP deletes a MACIP ACL. As in VPP its interfaces then accept all packets.
func (m *Model) DeleteMACIP(index uint32) error {
	defer m.change()()
	if m.macips.acls[index] == nil {
		return NoSuchEntry
	}
	delete(m.macips.acls, index)
	m.setMACIPLocked(index, NoIndex)
	return nil
}

// setMACIPLocked replaces the MACIP ACL of all interfaces that have the old one.
func (m *Model) setMACIPLocked(old, replacement uint32) {
	for _, i := range m.Interfaces.byIndex {
		if i.macip == old {
			i.macip = replacement
			m.Interfaces.syncLocked(i)
		}
	}
}

// ApplyMACIP sets the MACIP ACL of an interface.
func (m *Model) ApplyMACIP(index, list uint32) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if m.macips.acls[list] == nil {
			return NoSuchEntry
		}
		i.macip = list
		m.Interfaces.syncLocked(i)
		return nil
	})
}

// UnapplyMACIP removes the MACIP ACL of an interface.
func (m *Model) UnapplyMACIP(index uint32) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if i.macip == NoIndex {
			return NoSuchEntry
		}
		i.macip = NoIndex
		m.Interfaces.syncLocked(i)
		return nil
	})
}

// MACIPs lists the MACIP ACL of the given index, or all for NoIndex.
func (m *Model) MACIPs(index uint32) []MACIPDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.macips.list(index)
}

// AppliedMACIP is the MACIP ACL of an interface.
type AppliedMACIP struct{ Interface, ACL uint32 }

// AppliedMACIPs lists the MACIP ACL of the given interface, or of all for NoIndex, by interface.
func (m *Model) AppliedMACIPs(index uint32) []AppliedMACIP {
	return listInterfaces(m.Interfaces, index, func(i *iface) (AppliedMACIP, bool) {
		return AppliedMACIP{i.Index, i.macip}, i.macip != NoIndex
	})
}
