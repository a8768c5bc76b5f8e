package linux

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

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

// finish gives a tap's Linux end, which the dataplane made, what it lacks. It touches no link that is marked as
// somebody else's; was is the alias that we gave it before.
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
