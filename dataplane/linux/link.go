package linux

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// linkDescriptor is of links that others make: to create one is to find it there, to delete it is to leave it as it was used. VPP
// sets a link down when it lets go of it, so one that was to be up is set up again.
func linkDescriptor() kvscheduler.Descriptor[wire.Link, Place] {
	return kvscheduler.Descriptor[wire.Link, Place]{
		Name: wire.KindLink, Lane: Lane,
		Equal: func(want, have wire.Link) bool {
			return want.Name == have.Name && (have.Up || !want.Up) && (have.Unmerged || !want.Unmerged)
		},
		Validate: validateFoundLink,
		Backend: resident[wire.Link]{
			kind:      wire.KindLink,
			namespace: func(wire.Link) string { return "" },
			put:       findAndSetUp,
			remove:    findAndLeaveUp,
			find: func(h *handle, _ string, v wire.Link) (wire.Link, bool, error) {
				l, err := h.link(v.Name)
				if err != nil {
					return v, false, err
				}
				merging, err := mergingOf(l)
				return wire.Link{Name: v.Name, Up: isUp(l), Unmerged: len(merging) == 0}, err == nil, err
			},
		},
	}
}

func findAndLeaveUp(h *handle, v wire.Link) error {
	l, err := h.link(v.Name)
	if err == nil && v.Unmerged {
		err = setGRO(l)
	}
	if err != nil || !v.Up {
		return err
	}
	return setUp(h, l, true)
}

func validateFoundLink(name string, v wire.Link) error {
	if name != v.Name {
		return fmt.Errorf("the name is that of the link, %s", v.Name)
	}
	return validateLink(v.Name)
}

func findAndSetUp(h *handle, _ string, v wire.Link) error {
	l, err := h.link(v.Name)
	if err != nil {
		return refused(err)
	}
	if kind := l.Attrs().EncapType; kind != "ether" {
		return permanent(fmt.Errorf("link %s is of type %s, and not Ethernet", v.Name, kind))
	}
	if v.Unmerged {
		merging, err := mergingOf(l)
		if err == nil {
			err = setFeatures(v.Name, merging, func(bool) bool { return false })
		}
		if err != nil {
			return refused(err)
		}
	}
	if !v.Up {
		return nil
	}
	return setUp(h, l, true)
}

// LinkFault says why a link of the agent's own namespace carries nothing now; nil: it may.
func LinkFault(name string) error {
	return visit("", Place{}, func(h *handle) error {
		l, err := h.link(name)
		if err == nil && !isUp(l) {
			err = errors.New("link " + name + " is down")
		}
		return err
	})
}

func isVLAN(l netlink.Link) (*netlink.Vlan, bool) {
	vlan, is := l.(*netlink.Vlan)
	return vlan, is
}

// maxVLAN is the highest ID of a VLAN; the one above is reserved.
const maxVLAN = 4094

func vlanDescriptor() kvscheduler.Descriptor[wire.VLAN, Place] {
	return kvscheduler.Descriptor[wire.VLAN, Place]{
		Name: wire.KindVLAN, Lane: Lane,
		Equal:    func(want, have wire.VLAN) bool { return want == have },
		Validate: validateVLAN,
		Deps: func(_ string, v wire.VLAN) []kvscheduler.Dep {
			return []kvscheduler.Dep{{Label: "link", On: kvscheduler.Ref{Kind: wire.KindLink, Name: v.Parent}}}
		},
		Recreate: func(have, want wire.VLAN) bool {
			return have.Parent != want.Parent || have.ID != want.ID || have.Name != want.Name
		},
		After: []string{wire.KindLink},
		Backend: resident[wire.VLAN]{
			kind:      wire.KindVLAN,
			namespace: func(wire.VLAN) string { return "" },
			put:       func(h *handle, _ string, want wire.VLAN) error { return realiseVLAN(h, want, "") },
			change:    func(h *handle, _ string, have, want wire.VLAN) error { return realiseVLAN(h, want, have.Alias) },
			remove:    removeVLAN,
			find:      findVLAN,
		},
	}
}

func validateVLAN(_ string, v wire.VLAN) error {
	switch {
	case v.ID < 1 || v.ID > maxVLAN:
		return fmt.Errorf("VLAN %d is not within 1 and %d", v.ID, maxVLAN)
	case v.Alias == "" || len(v.Alias) > maxAlias:
		return fmt.Errorf("alias: it has 1 to %d bytes", maxAlias)
	}
	return errors.Join(validateLink(v.Parent), validateLink(v.Name))
}

// realiseVLAN makes the link of a VLAN, or finishes what is there of it. It touches no foreign link; was is
// the alias that we gave ours before.
func realiseVLAN(h *handle, v wire.VLAN, was string) error {
	parent, err := h.link(v.Parent)
	if err != nil {
		return refused(err)
	}
	l, err := h.link(v.Name)
	if errors.Is(err, errNoLink) {
		return addVLAN(h, parent, v)
	}
	if err != nil {
		return refused(err)
	}
	vlan, is := isVLAN(l)
	alias := l.Attrs().Alias
	if !is || vlan.VlanId != v.ID || l.Attrs().ParentIndex != parent.Attrs().Index || alias != "" && alias != v.Alias && alias != was {
		return permanent(fmt.Errorf("link %s is there already, a %s that belongs to %q", v.Name, l.Type(), alias))
	}
	return finishVLAN(h, l, v)
}

func addVLAN(h *handle, parent netlink.Link, v wire.VLAN) error {
	attrs := netlink.NewLinkAttrs() // the kernel's length of a queue; the zero value would be none at all
	attrs.Name, attrs.ParentIndex = v.Name, parent.Attrs().Index
	vlan := &netlink.Vlan{LinkAttrs: attrs, VlanId: v.ID, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	if err := h.LinkAdd(vlan); err != nil {
		return refused(fmt.Errorf("create link of VLAN %d on %s: %w", v.ID, v.Parent, err))
	}
	l, err := h.link(v.Name)
	if err == nil {
		err = finishVLAN(h, l, v)
	}
	if err == nil {
		return nil
	}
	if undo := h.LinkDel(vlan); undo != nil && !isGone(undo) {
		return fmt.Errorf("%w, and removing it again: %w", err, undo)
	}
	return refused(err)
}

func finishVLAN(h *handle, l netlink.Link, v wire.VLAN) error {
	if err := seal(h, l); err != nil {
		return err
	}
	return dress(h, l, dressing{alias: v.Alias, up: v.Up})
}

func removeVLAN(h *handle, v wire.VLAN) error {
	l, err := h.link(v.Name)
	if err != nil {
		return err
	}
	if _, is := isVLAN(l); !is || l.Attrs().Alias != v.Alias {
		return nil
	}
	return h.LinkDel(l)
}

// RemoveVLANs removes from the node of the caller the links of VLANs whose alias begins so.
func RemoveVLANs(alias string) error {
	return visit("", Place{}, func(h *handle) error {
		links, err := whole(h.LinkList)
		for _, l := range links {
			if _, is := isVLAN(l); !is || !strings.HasPrefix(l.Attrs().Alias, alias) {
				continue
			}
			if gone := h.LinkDel(l); gone != nil && !isGone(gone) {
				err = errors.Join(err, fmt.Errorf("remove %s: %w", l.Attrs().Name, gone))
			}
		}
		return err
	})
}

// findVLAN finds the link by its name and knows it by its alias; one that is not sealed is not up.
func findVLAN(h *handle, _ string, v wire.VLAN) (wire.VLAN, bool, error) {
	l, err := h.link(v.Name)
	if err != nil {
		return v, false, err
	}
	vlan, is := isVLAN(l)
	if !is || l.Attrs().Alias != v.Alias {
		return v, false, nil
	}
	parent, err := h.link(v.Parent)
	if err != nil || parent.Attrs().Index != l.Attrs().ParentIndex {
		v.Parent = "" // it is on another link
	}
	v.ID, v.Up = vlan.VlanId, isUp(l) && isSealed(l)
	return v, true, nil
}

// maxAlias is what the kernel keeps.
const maxAlias = 255

// maxLinkName is what the kernel takes as a link's name.
const maxLinkName = 15

// tapPeers are the functions that need to know what later plugins changed.
type tapPeers struct{ later *Later }

func tapPeerDescriptor(later *Later) kvscheduler.Descriptor[wire.TapPeer, Place] {
	p := tapPeers{later}
	return kvscheduler.Descriptor[wire.TapPeer, Place]{
		Name: wire.KindTapPeer, Lane: Lane,
		Equal:    equalTapPeers,
		Validate: validateTapPeer,
		Deps: func(_ string, v wire.TapPeer) []kvscheduler.Dep {
			return dependencies(kvscheduler.Ref{Kind: wire.KindInterface, Name: v.Interface}, kvscheduler.Part, v.Namespace)
		},
		Recreate: func(have, want wire.TapPeer) bool { return have.Namespace != want.Namespace || have.Name != want.Name },
		After:    []string{wire.KindNamespace},
		Backend: resident[wire.TapPeer]{
			kind:      wire.KindTapPeer,
			namespace: func(v wire.TapPeer) string { return v.Namespace },
			put:       func(h *handle, _ string, want wire.TapPeer) error { return p.finish(h, want, "") },
			change:    func(h *handle, _ string, have, want wire.TapPeer) error { return p.finish(h, want, have.Alias) },
			remove:    forgetTapPeer,
			find:      p.find,
		},
	}
}

func validateTapPeer(name string, v wire.TapPeer) error {
	switch {
	case name != v.Interface:
		return fmt.Errorf("the name is that of the interface, %s", v.Interface)
	case v.Alias == "" || len(v.Alias) > maxAlias:
		return fmt.Errorf("alias: it has 1 to %d bytes", maxAlias)
	case !v.MAC.IsZero() && !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %s is not that of one interface", v.MAC)
	}
	return validateLink(v.Name)
}

func validateLink(name string) error {
	if name == "" || len(name) > maxLinkName {
		return fmt.Errorf("link %q: a link's name has 1 to %d bytes", name, maxLinkName)
	}
	return nil
}

// equalTapPeers leaves to the kernel what want does not say.
func equalTapPeers(want, have wire.TapPeer) bool {
	if want.MAC.IsZero() {
		want.MAC = have.MAC
	}
	if want.MTU == 0 {
		want.MTU = have.MTU
	}
	return want == have
}

// finish gives a tap's Linux end, which the dataplane made, what it lacks. It touches no link with the alias of another
// object; was is the alias that Weft gave it before.
func (p tapPeers) finish(h *handle, v wire.TapPeer, was string) error {
	l, err := h.link(v.Name)
	if err != nil {
		return refused(err)
	}
	a := l.Attrs()
	if !isTap(l) {
		return permanent(fmt.Errorf("link %s is no tap but a %s: the dataplane did not make it", v.Name, l.Type()))
	}
	if a.Alias != "" && a.Alias != v.Alias && a.Alias != was {
		return permanent(fmt.Errorf("link %s belongs to %q", v.Name, a.Alias))
	}
	mtu := p.later.of(v.Interface).wanted(v.MTU)
	return dress(h, l, dressing{alias: v.Alias, mac: v.MAC, mtu: mtu, up: v.Up, harden: true, namespace: v.Namespace})
}

// dressing is what a link gets when it is there. The zero MAC and MTU leave the kernel's.
type dressing struct {
	alias string
	mac   wire.MAC
	mtu   int
	up    bool

	maxSegment int // 0 leaves the kernel's

	harden    bool   // it is a Linux end, in this namespace
	namespace string // path; "" = the node's
}

// dress gives a link what it lacks.
func dress(h *handle, l netlink.Link, d dressing) error {
	a := l.Attrs()
	if a.Alias != d.alias {
		if err := h.LinkSetAlias(l, d.alias); err != nil {
			return fmt.Errorf("set alias of %s: %w", a.Name, err)
		}
	}
	if !d.mac.IsZero() && macOf(l) != d.mac {
		if err := h.LinkSetHardwareAddr(l, d.mac[:]); err != nil {
			return fmt.Errorf("set MAC %s of %s: %w", d.mac, a.Name, err)
		}
	}
	if d.mtu != 0 && a.MTU != d.mtu {
		if err := h.LinkSetMTU(l, d.mtu); err != nil {
			return fmt.Errorf("set MTU %d of %s: %w", d.mtu, a.Name, err)
		}
	}
	if d.maxSegment != 0 && int(a.GSOMaxSize) != d.maxSegment {
		if err := h.LinkSetGSOMaxSize(l, d.maxSegment); err != nil {
			return fmt.Errorf("set largest segment of %s to %d bytes: %w", a.Name, d.maxSegment, err)
		}
	}
	if d.harden { // after the MTU: IPv6 has no settings of a link with one below 1280
		if err := harden(l, d.namespace); err != nil {
			return err
		}
	}
	return setUp(h, l, d.up)
}

func setUp(h *handle, l netlink.Link, up bool) error {
	set, word := h.LinkSetDown, "down"
	if up {
		set, word = h.LinkSetUp, "up"
	}
	if isUp(l) == up {
		return nil
	}
	if err := set(l); err != nil {
		return fmt.Errorf("set %s %s: %w", l.Attrs().Name, word, err)
	}
	return nil
}

func isUp(l netlink.Link) bool { return l.Attrs().Flags&net.FlagUp != 0 }

// forgetTapPeer takes our mark off a link that outlives us; most often it has gone with its tap.
func forgetTapPeer(h *handle, v wire.TapPeer) error {
	l, err := h.link(v.Name)
	if err != nil || l.Attrs().Alias != v.Alias {
		return err
	}
	return h.LinkSetAlias(l, "")
}

// find finds the link by its name and knows it by its alias.
func (p tapPeers) find(h *handle, _ string, v wire.TapPeer) (wire.TapPeer, bool, error) {
	l, err := h.link(v.Name)
	if err != nil {
		return v, false, err
	}
	a := l.Attrs()
	if !isTap(l) || a.Alias != v.Alias {
		return v, false, nil
	}
	v.MAC, v.MTU, v.Up = macOf(l), p.later.of(v.Interface).read(a.MTU, v.MTU), isUp(l)
	return v, true, nil
}
