package linux

import (
	"errors"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// A link in a pod is the pod's after the ADD: a program may rename it, move it into a namespace of its own (a VRF, a
// router, a virtual machine), or make it a port of a bridge, a bond or a VRF. Its alias, which follows the link,
// identifies it. A link that is in use elsewhere is not missing, and Weft does not change it; docs/operations.md has a
// table of the owners.

// place says where a pod's link is.
type place int

const (
	lost      place = iota // in no namespace that the pod's namespace knows
	inPlace                // in the pod's namespace, with the name of the ADD, and a port of no other link
	takenOver              // elsewhere, with another name, or a port of another link
)

// placeOf finds a link of a pod. It searches the namespace of the handle first, then the namespaces that this one has
// an nsid of: the kernel assigns one when a link moves there (rtnetlink(7), IFLA_NEW_NETNSID).
func (h *handle) placeOf(p PodLink) (place, error) {
	l, err := h.link(p.Name)
	if err != nil && !errors.Is(err, errNoLink) {
		return lost, err
	}
	if err == nil && l.Attrs().Alias == p.Alias && l.Type() == p.kind() {
		if l.Attrs().MasterIndex != 0 {
			return takenOver, nil
		}
		return inPlace, nil
	}
	if p.Alias == "" {
		return lost, nil // it cannot be identified elsewhere
	}
	if found, err := h.search.finds(foundLink{p.Alias, p.kind()}); err != nil || !found {
		return lost, err
	}
	return takenOver, nil
}

// placeOfPeer returns the place of the pod's end of a veth. A host's end has a peer: the pod took over what is not
// where the ADD put it.
func (h *handle) placeOfPeer(host netlink.Link, name string) (place, error) {
	l, err := h.link(name)
	switch {
	case errors.Is(err, errNoLink):
		return takenOver, nil
	case err != nil:
		return lost, err
	case !isPair(host, l), l.Attrs().MasterIndex != 0:
		return takenOver, nil
	}
	return inPlace, nil
}

// holds reports whether a link of a pod is where the ADD put it, for changes of its addresses, routes and settings.
func (h *handle) holds(name string) (bool, error) {
	l, err := h.link(name)
	if errors.Is(err, errNoLink) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return strings.HasPrefix(l.Attrs().Alias, wire.AliasPrefix) && l.Attrs().MasterIndex == 0, nil
}

// unlessTakenOver returns f for objects on links of pods that are where the ADD put them. It leaves other links of pods
// alone: the scheduler calls it while the link's object exists, so the pod took the link over. link returns "" for an
// object on no certain link.
func unlessTakenOver[V any](link func(V) string, f func(*handle, V) error) func(*handle, V) error {
	return func(h *handle, v V) error {
		if name := link(v); h.ofPod && name != "" {
			if holds, err := h.holds(name); err != nil || !holds {
				return refused(err)
			}
		}
		return f(h, v)
	}
}

// minMTU6 is the least MTU of IPv6 (RFC 8200, section 5). The kernel removes IPv6 from a link with a lower one: its
// addresses, routes, neighbours and settings.
const minMTU6 = 1280

// onlyMTU reports whether two values of a link differ in the MTU at most, so that addresses, routes and neighbours on
// it outlive the change. Below minMTU6 the kernel removes the ones of IPv6.
func onlyMTU(have, want int, alike bool) bool { return alike && min(have, want) >= minMTU6 }

// lacksIPv6 reports whether a pod lowered the MTU of its link so far that it has no IPv6. Weft itself gives no link
// with IPv6 addresses such an MTU (pod.MinMTU).
func (h *handle) lacksIPv6(name string) (bool, error) {
	l, err := h.link(name)
	if errors.Is(err, errNoLink) {
		return false, nil
	}
	return err == nil && l.Attrs().MTU > 0 && l.Attrs().MTU < minMTU6, err
}

// unlessWithoutIPv6 returns f for objects on links of pods that can exist. It skips an object that needs IPv6 on a link
// if the pod removed IPv6 from it.
func unlessWithoutIPv6[V any](
	link func(V) string, needs func(V) bool, f func(*handle, V) error,
) func(*handle, V) error {
	return func(h *handle, v V) error {
		if h.ofPod && needs(v) {
			if lacks, err := h.lacksIPv6(link(v)); err != nil || lacks {
				return refused(err)
			}
		}
		return f(h, v)
	}
}

// podLinksOf returns the identities that the links of an object may have in a pod: of the applied value, then of the
// desired one.
func podLinksOf(view kvscheduler.View, on string) (links []PodLink) {
	ref := parseRef(on)
	for _, v := range knownValues[wire.TapPeer](view, wire.KindTapPeer, ref.Name) {
		if ref.Kind == wire.KindTapPeer {
			links = append(links, tapLink(v))
		}
	}
	for _, v := range knownValues[wire.Veth](view, wire.KindVeth, ref.Name) {
		if ref.Kind == wire.KindVeth {
			links = append(links, PodLink{Name: v.Name, Alias: v.Alias, Veth: true})
		}
	}
	return links
}

func tapLink(v wire.TapPeer) PodLink { return PodLink{Name: v.Name, Alias: v.Alias} }

// kind returns the kernel's name of the kind of the link.
func (p PodLink) kind() string {
	if p.Veth {
		return (&netlink.Veth{}).Type()
	}
	return (&netlink.Tuntap{}).Type()
}

// isTakenOver reports whether the pod took over the link of an object.
func (h *handle) isTakenOver(view kvscheduler.View, on string) (bool, error) {
	for _, link := range podLinksOf(view, on) {
		if at, err := h.placeOf(link); err != nil || at != lost {
			return at == takenOver, err
		}
	}
	return false, nil
}
