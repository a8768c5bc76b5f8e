package model

import (
	"maps"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

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
