package linux

import (
	"errors"
	"fmt"

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
