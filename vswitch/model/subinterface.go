package model

import (
	"fmt"

	"github.com/weftnet/weft/vswitch/forward"
)

// SubFlags say which frames a sub-interface receives, with the bits of create_subif.
type SubFlags uint32

// The flags that sub-interfaces have here. Tags match exactly, or not at all.
const (
	SubOneTag     SubFlags = 2
	SubTwoTags    SubFlags = 4
	SubDot1AD     SubFlags = 8
	SubExactMatch SubFlags = 16
	SubDefault    SubFlags = 32
)

// Sub holds the fields of create_subif.
type Sub struct {
	Parent       uint32
	ID           uint32 // unique on the parent; part of the name
	Flags        SubFlags
	Outer, Inner uint16
}

// TagRewrite is the operation of l2_interface_vlan_tag_rewrite.
type TagRewrite uint32

// The operations. The others, which add or replace tags, are unsupported.
const (
	TagRewriteOff    TagRewrite = 0
	TagRewritePop1   TagRewrite = 3
	TagRewritePop2   TagRewrite = 4
	lastTagRewrite   TagRewrite = 8
	minVLAN, maxVLAN            = 1, 4094
)

// Tags returns the number of tags that the sub-interface matches.
func (s *Sub) Tags() int {
	switch {
	case s.Flags&SubOneTag != 0:
		return 1
	case s.Flags&SubTwoTags != 0:
		return 2
	}
	return 0
}

// match returns the frames of a sub-interface; false: the packet path has no such match.
func (s *Sub) match() (forward.TagMatch, bool) {
	m := forward.TagMatch{AD: s.Flags&SubDot1AD != 0, Outer: s.Outer}
	switch s.Flags &^ SubDot1AD {
	case SubDefault:
		return forward.TagMatch{Rest: true}, s.Flags == SubDefault
	case SubOneTag | SubExactMatch:
		return m, isVLAN(s.Outer)
	case SubTwoTags | SubExactMatch:
		m.Inner = s.Inner
		return m, isVLAN(s.Outer) && isVLAN(s.Inner)
	}
	return m, false
}

func isVLAN(id uint16) bool { return id >= minVLAN && id <= maxVLAN }

// SubInterfaces are the sub-interfaces of all interfaces.
type SubInterfaces struct {
	*barrier
	interfaces *Interfaces
}

// Add creates a sub-interface of an Ethernet interface with a port, and returns its index. A parent cannot have two
// with the same id; with the same tags, VPP reports an unspecified error.
func (ss *SubInterfaces) Add(s Sub) (uint32, error) {
	defer ss.change()()
	parent, err := ss.interfaces.findLocked(s.Parent)
	if err != nil {
		return NoIndex, err
	}
	match, known := s.match()
	for _, other := range ss.interfaces.subsLocked(parent) {
		if other.ID == s.ID {
			return NoIndex, VLANAlreadyExists
		}
		if is, _ := other.match(); is == match {
			return NoIndex, Unspecified
		}
	}
	if !known || !parent.ethernet || !parent.hasPort() {
		return NoIndex, Unsupported
	}
	index, err := ss.interfaces.freeIndexLocked()
	if err != nil {
		return NoIndex, err
	}
	i := newIface(Interface{
		Index:   index,
		Name:    fmt.Sprintf("%s.%d", parent.Name, s.ID),
		DevType: parent.DevType,
		Sub:     &s,
	})
	i.ethernet = true
	i.kind = &s
	return ss.interfaces.addLocked(i)
}

// AddVLAN creates the sub-interface of a VLAN.
func (ss *SubInterfaces) AddVLAN(parent, vlan uint32) (uint32, error) {
	if vlan == 0 || vlan > maxVLAN+1 {
		return NoIndex, InvalidVLAN
	}
	index, err := ss.Add(Sub{Parent: parent, ID: vlan, Flags: SubOneTag | SubExactMatch, Outer: uint16(vlan)})
	if err == error(Unspecified) { //nolint:errorlint // a number of this package
		err = InvalidRegistration
	}
	return index, err
}

// Delete deletes a sub-interface.
func (ss *SubInterfaces) Delete(index uint32) error {
	return ss.interfaces.with(index, func(i *iface) error {
		if kindOf[Sub](i) == nil {
			return InvalidSubSwIfIndex
		}
		ss.interfaces.deleteLocked(i)
		return nil
	})
}

// SetTagRewrite sets the tags that an interface removes in a bridge domain. As in VPP it forgets them when it leaves.
func (ss *SubInterfaces) SetTagRewrite(index uint32, r TagRewrite) error {
	return ss.interfaces.with(index, func(i *iface) error {
		if r > lastTagRewrite {
			return InvalidValue
		}
		if !i.ethernet {
			return InvalidInterface
		}
		sub := kindOf[Sub](i)
		tags := 0
		if sub != nil {
			tags = sub.Tags()
		}
		switch {
		case r == TagRewritePop1 && tags < 1 || r == TagRewritePop2 && tags < 2:
			return InvalidVLANTagCount
		case r == TagRewritePop1 && tags == 2:
			return Unsupported
		case r != TagRewriteOff && r != TagRewritePop1 && r != TagRewritePop2:
			return Unsupported
		}
		i.TagRewrite = r
		ss.interfaces.syncLocked(i)
		return nil
	})
}

// subsLocked lists the sub-interfaces of an interface.
func (is *Interfaces) subsLocked(parent *iface) map[*iface]*Sub {
	all := map[*iface]*Sub{}
	for _, i := range is.byIndex {
		if s := kindOf[Sub](i); s != nil && s.Parent == parent.Index {
			all[i] = s
		}
	}
	return all
}

// engineSub returns the sub-interface for the engine; nil for other interfaces.
func (i *iface) engineSub() *forward.Sub {
	s := kindOf[Sub](i)
	if s == nil {
		return nil
	}
	match, _ := s.match()
	sub := &forward.Sub{Parent: s.Parent, Tags: match}
	if i.TagRewrite != TagRewriteOff {
		sub.Pop = s.Tags()
	}
	return sub
}

// checkLocked checks a sub-interface's parent, and that no other one has its tags.
func (ss *SubInterfaces) checkLocked(i *iface) error {
	s := kindOf[Sub](i)
	if s == nil {
		return nil
	}
	match, known := s.match()
	parent := ss.interfaces.byIndex[s.Parent]
	if !known || parent == nil || !parent.hasPort() || !parent.ethernet {
		return fmt.Errorf("%w: %s is a part of interface %d", errState, i.Name, s.Parent)
	}
	for other, is := range ss.interfaces.subsLocked(parent) {
		if same, _ := is.match(); other != i && (same == match || is.ID == s.ID) {
			return fmt.Errorf("%w: %s has the tags of %s", errState, i.Name, other.Name)
		}
	}
	return nil
}
