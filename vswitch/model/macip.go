package model

import (
	"fmt"

	"github.com/weftnet/weft/vswitch/forward"
)

// MACIPs are the MACIP ACLs and their use by interfaces.
type MACIPs struct {
	*barrier
	interfaces *Interfaces
	set        aclSet[forward.MACIPRule, forward.MACIPFilter]
}

func newMACIPs(b *barrier, interfaces *Interfaces) *MACIPs {
	set := newACLSet(1<<16, checkMACIPRule, func(_ uint32, a MACIPACL) *forward.MACIPFilter {
		return forward.NewMACIPFilter(a.Rules)
	})
	return &MACIPs{barrier: b, interfaces: interfaces, set: set}
}

func checkMACIPRule(r forward.MACIPRule) error {
	if !r.Prefix.IsValid() {
		return InvalidValue
	}
	return nil
}

// Add adds a MACIP ACL and returns its index. Indexes are not reused soon.
func (ms *MACIPs) Add(a MACIPACL) (uint32, error) {
	defer ms.change()()
	return ms.set.add(a)
}

// Replace replaces a MACIP ACL. The change affects the interfaces of the ACL at once.
func (ms *MACIPs) Replace(index uint32, a MACIPACL) error {
	defer ms.change()()
	if err := ms.set.replace(index, a); err != nil {
		return err
	}
	ms.exchangeLocked(index, index)
	return nil
}

// Delete deletes a MACIP ACL. As in VPP its interfaces then accept all packets.
func (ms *MACIPs) Delete(index uint32) error {
	defer ms.change()()
	if ms.set.acls[index] == nil {
		return NoSuchEntry
	}
	delete(ms.set.acls, index)
	ms.exchangeLocked(index, NoIndex)
	return nil
}

// exchangeLocked replaces the MACIP ACL of all interfaces that have the old one.
func (ms *MACIPs) exchangeLocked(old, replacement uint32) {
	for _, i := range ms.interfaces.byIndex {
		if i.macip == old {
			i.macip = replacement
			ms.interfaces.syncLocked(i)
		}
	}
}

// Apply sets the MACIP ACL of an interface.
func (ms *MACIPs) Apply(index, list uint32) error {
	return ms.interfaces.with(index, func(i *iface) error {
		if ms.set.acls[list] == nil {
			return NoSuchEntry
		}
		i.macip = list
		ms.interfaces.syncLocked(i)
		return nil
	})
}

// Unapply removes the MACIP ACL of an interface.
func (ms *MACIPs) Unapply(index uint32) error {
	return ms.interfaces.with(index, func(i *iface) error {
		if i.macip == NoIndex {
			return NoSuchEntry
		}
		i.macip = NoIndex
		ms.interfaces.syncLocked(i)
		return nil
	})
}

// List lists the MACIP ACL of the given index, or all for NoIndex.
func (ms *MACIPs) List(index uint32) []MACIPDetails {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.set.list(index)
}

// AppliedMACIP is the MACIP ACL of an interface.
type AppliedMACIP struct{ Interface, ACL uint32 }

// Applied lists the MACIP ACL of the given interface, or of all for NoIndex, by interface.
func (ms *MACIPs) Applied(index uint32) []AppliedMACIP {
	return listInterfaces(ms.interfaces, index, func(i *iface) (AppliedMACIP, bool) {
		return AppliedMACIP{i.Index, i.macip}, i.macip != NoIndex
	})
}

func (ms *MACIPs) configureLocked(i *iface, f *forward.Interface) { f.MACIP = ms.set.filter(i.macip) }

func (ms *MACIPs) stateLocked(s *State) {
	s.MACIPs = ms.set.list(NoIndex)
	s.NextMACIP = ms.set.next
}

func (ms *MACIPs) restoreLocked(s *State) error {
	for _, a := range s.MACIPs {
		if err := ms.set.validate(a.ACL); err != nil {
			return fmt.Errorf("%w: MACIP ACL %d: %w", errState, a.Index, err)
		}
		ms.set.put(a.Index, a.ACL)
	}
	ms.set.next = s.NextMACIP
	return nil
}
