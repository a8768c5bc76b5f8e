package linux

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

func neighbourDescriptor() kvscheduler.Descriptor[wire.LinuxNeighbour, Place] {
	return kvscheduler.Descriptor[wire.LinuxNeighbour, Place]{
		Name: wire.KindLinuxNeighbour, Lane: Lane,
		Equal:    func(want, have wire.LinuxNeighbour) bool { return want == have },
		Validate: validateNeighbour,
		Deps: func(_ string, v wire.LinuxNeighbour) []kvscheduler.Dep {
			return dependencies(refOf(v.On), kvscheduler.Follow, v.Namespace)
		},
		Recreate: func(have, want wire.LinuxNeighbour) bool {
			return have.Namespace != want.Namespace || have.Link != want.Link
		},
		After: []string{wire.KindNamespace, wire.KindTapPeer, wire.KindVeth},
		Backend: resident[wire.LinuxNeighbour]{
			kind:      wire.KindLinuxNeighbour,
			namespace: func(v wire.LinuxNeighbour) string { return v.Namespace },
			put:       setNeighbour,
			remove:    deleteNeighbour,
			find:      findNeighbour,
			list:      listNeighbours,
			link:      func(v wire.LinuxNeighbour) string { return v.Link },
		},
	}
}

func validateNeighbour(name string, v wire.LinuxNeighbour) error {
	switch {
	case !v.Address.IsValid() || v.Address.Is4In6() || v.Address.IsUnspecified() || v.Address.IsMulticast() || v.Address.Zone() != "":
		return fmt.Errorf("address %s is not that of a neighbour", v.Address)
	case !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %q is not that of one interface", v.MAC)
	}
	return validateOn(v.On, v.Link, name, wire.LinuxNeighbourKey(v.On, v.Address))
}

// setNeighbour also replaces what the kernel has learned.
func setNeighbour(h *handle, _ string, v wire.LinuxNeighbour) error {
	l, err := h.linkFor(v.Link, v.Address)
	if err == nil {
		err = h.NeighSet(kernelNeighbour(l, v))
	}
	if err != nil {
		return refused(fmt.Errorf("set neighbour %s of %s: %w", v.Address, v.Link, err))
	}
	return nil
}

func deleteNeighbour(h *handle, v wire.LinuxNeighbour) error {
	l, err := h.link(v.Link)
	if err != nil {
		return err
	}
	return h.NeighDel(kernelNeighbour(l, v))
}

func findNeighbour(h *handle, _ string, v wire.LinuxNeighbour) (wire.LinuxNeighbour, bool, error) {
	l, err := h.link(v.Link)
	if err != nil {
		return v, false, err
	}
	list, err := whole(func() ([]netlink.Neigh, error) { return h.NeighList(l.Attrs().Index, family(v.Address.Is4())) })
	for _, n := range list {
		if addrOf(n.IP) == v.Address && n.State&netlink.NUD_PERMANENT != 0 && len(n.HardwareAddr) == len(v.MAC) {
			v.MAC = wire.MAC(n.HardwareAddr)
			return v, true, err
		}
	}
	return v, false, err
}

// listNeighbours lists those that the kernel did not learn.
func listNeighbours(h *handle, v wire.LinuxNeighbour) (map[string]wire.LinuxNeighbour, error) {
	l, ours, err := h.nodeLink(v.Link)
	if err != nil || !ours {
		return nil, err
	}
	list, err := whole(func() ([]netlink.Neigh, error) { return h.NeighList(l.Attrs().Index, netlink.FAMILY_ALL) })
	found := map[string]wire.LinuxNeighbour{}
	for _, n := range list {
		if n.State&netlink.NUD_PERMANENT != 0 && len(n.HardwareAddr) == len(v.MAC) {
			v.Address, v.MAC = addrOf(n.IP), wire.MAC(n.HardwareAddr)
			found[refOf(wire.LinuxNeighbourKey(v.On, v.Address)).Name] = v
		}
	}
	return found, err
}

func kernelNeighbour(l netlink.Link, v wire.LinuxNeighbour) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: l.Attrs().Index, Family: family(v.Address.Is4()), State: netlink.NUD_PERMANENT,
		IP: v.Address.AsSlice(), HardwareAddr: v.MAC[:],
	}
}
