package linux

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

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
