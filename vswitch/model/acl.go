package model

import (
	"fmt"
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

// maxACLsOfInterface is the maximum of the 8-bit count in acl_interface_set_acl_list.
const maxACLsOfInterface = 255

// ACLs are the ACLs and their use by interfaces.
type ACLs struct {
	*barrier
	interfaces *Interfaces
	set        aclSet[forward.ACLRule, forward.ACLFilter]
	counting   bool // the rules count packets
}

func newACLs(b *barrier, interfaces *Interfaces) *ACLs {
	set := newACLSet(1<<12, checkRule, func(index uint32, a IPACL) *forward.ACLFilter {
		return forward.NewACLFilter(index, a.Tag, a.Rules)
	})
	return &ACLs{barrier: b, interfaces: interfaces, set: set}
}

// Add adds an ACL and returns its index. Indexes are not reused soon.
func (as *ACLs) Add(a IPACL) (uint32, error) {
	defer as.change()()
	return as.set.add(a)
}

// Replace replaces an ACL. The change affects the interfaces of the ACL at once.
func (as *ACLs) Replace(index uint32, a IPACL) error {
	defer as.change()()
	if err := as.set.replace(index, a); err != nil {
		return err
	}
	for _, i := range as.interfaces.byIndex {
		if slices.Contains(i.acls.Input, index) || slices.Contains(i.acls.Output, index) {
			as.interfaces.syncLocked(i)
		}
	}
	return nil
}

// Delete deletes an ACL that no interface uses.
func (as *ACLs) Delete(index uint32) error {
	defer as.change()()
	if as.set.acls[index] == nil {
		return NoSuchEntry
	}
	for _, i := range as.interfaces.byIndex {
		switch {
		case slices.Contains(i.acls.Input, index):
			return ACLInUseInbound
		case slices.Contains(i.acls.Output, index):
			return ACLInUseOutbound
		}
	}
	delete(as.set.acls, index)
	return nil
}

// ACLLists are the indexes of the ACLs of an interface, which apply in order.
type ACLLists struct{ Input, Output []uint32 }

func (l ACLLists) clone() ACLLists { return ACLLists{slices.Clone(l.Input), slices.Clone(l.Output)} }

// SetInterface sets the ACLs of an interface at once. A direction without ACLs permits all packets.
func (as *ACLs) SetInterface(index uint32, lists ACLLists) error {
	return as.interfaces.with(index, func(i *iface) error {
		if len(lists.Input)+len(lists.Output) > maxACLsOfInterface {
			return InvalidValue
		}
		for _, acls := range [][]uint32{lists.Input, lists.Output} {
			for n, a := range acls {
				if as.set.acls[a] == nil {
					return NoSuchEntry
				}
				if slices.Contains(acls[:n], a) {
					return EntryAlreadyExists
				}
			}
		}
		i.acls = lists.clone()
		as.interfaces.syncLocked(i)
		return nil
	})
}

// configureLocked sets the filters of an interface, which shares them with other interfaces.
func (as *ACLs) configureLocked(i *iface, f *forward.Interface) {
	f.ACL = forward.AccessLists{Count: as.counting}
	for _, index := range i.acls.Input {
		f.ACL.Input = append(f.ACL.Input, as.set.filter(index))
	}
	for _, index := range i.acls.Output {
		f.ACL.Output = append(f.ACL.Output, as.set.filter(index))
	}
}

// Count makes the rules of ACLs count packets, or stop counting.
func (as *ACLs) Count(on bool) {
	defer as.change()()
	as.counting = on
	for _, i := range as.interfaces.byIndex {
		as.interfaces.syncLocked(i)
	}
}

// ACLHits holds the counters of the rules of an ACL, by rule.
type ACLHits struct {
	Index uint32
	Rules []forward.RuleHits
}

// Hits lists the counters of all ACLs, by index; none unless Count is on.
func (as *ACLs) Hits() []ACLHits {
	as.mu.Lock()
	defer as.mu.Unlock()
	var all []ACLHits
	if !as.counting {
		return nil
	}
	for _, index := range slices.Sorted(maps.Keys(as.set.acls)) {
		all = append(all, ACLHits{index, as.set.filter(index).Hits()})
	}
	return all
}

// List lists the ACL of the given index, or all for NoIndex.
func (as *ACLs) List(index uint32) []IPACLDetails {
	as.mu.Lock()
	defer as.mu.Unlock()
	return as.set.list(index)
}

// InterfaceACLs holds the fields of acl_interface_list_details.
type InterfaceACLs struct {
	Interface uint32
	ACLLists
}

// Interfaces lists the ACLs of the given interface, or of all for NoIndex.
func (as *ACLs) Interfaces(index uint32) []InterfaceACLs {
	return listInterfaces(as.interfaces, index, func(i *iface) (InterfaceACLs, bool) {
		return InterfaceACLs{i.Index, i.acls.clone()}, true
	})
}

// checkLocked checks that the ACLs of an interface exist.
func (as *ACLs) checkLocked(i *iface) error {
	for _, a := range slices.Concat(i.acls.Input, i.acls.Output) {
		if as.set.acls[a] == nil {
			return fmt.Errorf("%w: %s has ACL %d, which is missing", errState, i.Name, a)
		}
	}
	return nil
}

func (as *ACLs) stateLocked(s *State) {
	s.ACLs = as.set.list(NoIndex)
	s.NextACL = as.set.next
	s.CountACLs = as.counting
}

func (as *ACLs) restoreLocked(s *State) error {
	for _, a := range s.ACLs {
		if err := as.set.validate(a.ACL); err != nil {
			return fmt.Errorf("%w: ACL %d: %w", errState, a.Index, err)
		}
		as.set.put(a.Index, a.ACL)
	}
	as.set.next = s.NextACL
	as.counting = s.CountACLs
	return nil
}
