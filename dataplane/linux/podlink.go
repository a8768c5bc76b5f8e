package linux

import (
	"errors"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// A link in a pod is the pod's after the ADD: a program may rename it, move it into a namespace of its own (a VRF, a router, a virtual
// machine), or make it a port of a bridge, a bond or a VRF. Its alias, which follows the link, identifies it. A link that is in use
// elsewhere is not missing, and Weft changes nothing of it; docs/operations.md has the table of what is whose.

// place says where a pod's link is.
type place int

const (
	lost      place = iota // in no namespace that the pod's namespace knows
	inPlace                // in the pod's namespace, with the name of the ADD, and a port of no other link
	takenOver              // elsewhere, with another name, or a port of another link
)

// podLink identifies a link in a pod.
type podLink struct {
	name  string // of the ADD
	alias string
	kind  string // the kernel's
}

// maxNested bounds the namespaces that are searched for a link of a pod.
const maxNested = 64

// placeOf finds a link of a pod. It searches the namespace of the handle first, then the namespaces that this one has an nsid of: the kernel
// assigns one when a link moves there (rtnetlink(7), IFLA_NEW_NETNSID).
func (h *handle) placeOf(p podLink) (place, error) {
	l, err := h.link(p.name)
	if err != nil && !errors.Is(err, errNoLink) {
		return lost, err
	}
	if err == nil && l.Attrs().Alias == p.alias && l.Type() == p.kind {
		if l.Attrs().MasterIndex != 0 {
			return takenOver, nil
		}
		return inPlace, nil
	}
	if p.alias == "" {
		return lost, nil // nothing identifies it elsewhere
	}
	isThere, err := h.hasLink(p, nil)
	if err != nil || isThere {
		return takenOver, err
	}
	nested, err := h.nsids()
	for _, nsid := range nested {
		if err != nil || isThere {
			break
		}
		isThere, err = h.hasLink(p, nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(nsid)))
	}
	if err == nil && !isThere {
		return lost, nil
	}
	return takenOver, err
}

// hasLink reports whether a namespace has a link of this kind and alias. target is the attribute that selects the namespace; nil: the
// handle's. A namespace that was deleted meanwhile has none.
func (h *handle) hasLink(p podLink, target *nl.RtAttr) (has bool, err error) {
	request := []nl.NetlinkRequestData{nl.NewIfInfomsg(unix.AF_UNSPEC)}
	if target != nil {
		request = append(request, target)
	}
	err = h.bounded(func() error {
		return dumpEach(unix.RTM_GETLINK, request, func(object []byte) error {
			l, err := netlink.LinkDeserialize(nil, object)
			has = has || err == nil && l.Type() == p.kind && l.Attrs().Alias == p.alias
			return err
		})
	})
	if target != nil && errors.Is(err, unix.EINVAL) {
		err = nil
	}
	return has, err
}

// nsids lists the namespaces that the namespace of the handle knows, up to maxNested.
func (h *handle) nsids() (list []uint32, err error) {
	err = h.bounded(func() error {
		return dumpEach(unix.RTM_GETNSID, []nl.NetlinkRequestData{nl.NewRtGenMsg()}, func(object []byte) error {
			attributes, err := nl.ParseRouteAttr(object[nl.NewRtGenMsg().Len():])
			for _, a := range attributes {
				if a.Attr.Type == netlink.NETNSA_NSID && len(list) < maxNested {
					list = append(list, nl.NativeEndian().Uint32(a.Value))
				}
			}
			return err
		})
	})
	return list, err
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

// unlessTakenOver returns f for objects on links of pods that are where the ADD put them. It does nothing for other links of pods: the
// scheduler calls it while the link's object exists, so the pod took the link over. link returns "" for an object on no certain link.
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

// podLinksOf returns the identities that the links of an object may have in a pod: of the applied value, then of the desired one.
func podLinksOf(view kvscheduler.View, on string) (links []podLink) {
	ref := parseRef(on)
	for _, v := range knownValues[wire.TapPeer](view, wire.KindTapPeer, ref.Name) {
		if ref.Kind == wire.KindTapPeer {
			links = append(links, tapLink(v))
		}
	}
	for _, v := range knownValues[wire.Veth](view, wire.KindVeth, ref.Name) {
		if ref.Kind == wire.KindVeth {
			links = append(links, PodLink{Name: v.Name, Alias: v.Alias, Veth: true}.identity())
		}
	}
	return links
}

func tapLink(v wire.TapPeer) podLink { return PodLink{Name: v.Name, Alias: v.Alias}.identity() }

func (p PodLink) identity() podLink {
	kind := (&netlink.Tuntap{}).Type()
	if p.Veth {
		kind = (&netlink.Veth{}).Type()
	}
	return podLink{p.Name, p.Alias, kind}
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
