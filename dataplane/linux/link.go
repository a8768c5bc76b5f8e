package linux

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// linkDescriptor describes links that other components make. Create finds a link and sets it up. Delete leaves it up,
// since VPP sets a link down when it releases it, and turns GRO on.
func linkDescriptor() kvscheduler.Descriptor[wire.Link, netnsID] {
	return kvscheduler.Descriptor[wire.Link, netnsID]{
		Name: wire.KindLink, Lane: Lane,
		Equal: func(want, have wire.Link) bool {
			return want.Name == have.Name && (have.Up || !want.Up) && (have.Unmerged || !want.Unmerged) &&
				have.Room >= want.Room
		},
		Validate: validateFoundLink,
		Backend: namespaced[wire.Link]{
			kind:      wire.KindLink,
			namespace: func(wire.Link) string { return "" },
			put:       setUpLink,
			remove:    releaseLink,
			find: func(h *handle, v wire.Link) (wire.Link, bool, error) {
				l, err := h.link(v.Name)
				if err != nil {
					return v, false, err
				}
				merging, err := mergingOf(l)
				is := wire.Link{Name: v.Name, Up: isUp(l), Unmerged: len(merging) == 0, Room: l.Attrs().MTU}
				return is, err == nil, err
			},
		},
	}
}

func releaseLink(h *handle, v wire.Link) error {
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
		return fmt.Errorf("name %s is not that of the link, %s", name, v.Name)
	}
	return validateLink(v.Name)
}

func setUpLink(h *handle, v wire.Link) error {
	l, err := h.link(v.Name)
	if err != nil {
		return refused(err)
	}
	if kind := l.Attrs().EncapType; kind != "ether" {
		return permanent(fmt.Errorf("link %s has type %s, not Ethernet", v.Name, kind))
	}
	if mtu := l.Attrs().MTU; mtu < v.Room {
		return refused(fmt.Errorf("link %s has MTU %d, and the frames of its VLANs need %d: raise it, or lower the mtu of "+
			"the network", v.Name, mtu, v.Room))
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

// CheckLinkUp returns an error unless the agent's namespace has a link of that name that is up.
func CheckLinkUp(name string) error {
	return withHandle(func(h *handle) error {
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

// maxVLAN is the highest VLAN ID; 4095 is reserved.
const maxVLAN = 4094

func vlanDescriptor() kvscheduler.Descriptor[wire.VLAN, netnsID] {
	return kvscheduler.Descriptor[wire.VLAN, netnsID]{
		Name: wire.KindVLAN, Lane: Lane,
		Equal:    equal[wire.VLAN],
		Validate: validateVLAN,
		Deps: func(_ string, v wire.VLAN) []kvscheduler.Dep {
			return []kvscheduler.Dep{{Label: "link", On: kvscheduler.Ref{Kind: wire.KindLink, Name: v.Parent}}}
		},
		Recreate: func(have, want wire.VLAN) bool {
			return have.Parent != want.Parent || have.ID != want.ID || have.Name != want.Name
		},
		After: []string{wire.KindLink},
		Backend: namespaced[wire.VLAN]{
			kind:      wire.KindVLAN,
			namespace: func(wire.VLAN) string { return "" },
			put:       func(h *handle, want wire.VLAN) error { return ensureVLAN(h, want, "") },
			change:    func(h *handle, have, want wire.VLAN) error { return ensureVLAN(h, want, have.Alias) },
			remove:    removeVLAN,
			find:      findVLAN,
		},
	}
}

func validateVLAN(_ string, v wire.VLAN) error {
	switch {
	case v.ID < 1 || v.ID > maxVLAN:
		return fmt.Errorf("VLAN %d is not within 1 and %d", v.ID, maxVLAN)
	}
	return errors.Join(validateAlias(v.Alias), validateLink(v.Parent), validateLink(v.Name))
}

// ensureVLAN makes the link of a VLAN, or configures the existing one. It does not change foreign links. oldAlias is
// the alias that the existing link may have.
func ensureVLAN(h *handle, v wire.VLAN, oldAlias string) error {
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
	if !is || vlan.VlanId != v.ID || l.Attrs().ParentIndex != parent.Attrs().Index ||
		alias != "" && alias != v.Alias && alias != oldAlias {
		return permanent(foreignLink(l))
	}
	return configureVLAN(h, l, v)
}

func addVLAN(h *handle, parent netlink.Link, v wire.VLAN) error {
	attrs := netlink.NewLinkAttrs() // the kernel's default queue length; the zero value means no queue
	attrs.Name = v.Name
	attrs.ParentIndex = parent.Attrs().Index
	vlan := &netlink.Vlan{LinkAttrs: attrs, VlanId: v.ID, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	if err := h.LinkAdd(vlan); err != nil {
		return refused(fmt.Errorf("create link of VLAN %d on %s: %w", v.ID, v.Parent, err))
	}
	l, err := h.link(v.Name)
	if err == nil {
		err = configureVLAN(h, l, v)
	}
	if err != nil {
		return h.undoAdd(vlan, err)
	}
	return nil
}

func configureVLAN(h *handle, l netlink.Link, v wire.VLAN) error {
	if err := isolate(h, l); err != nil {
		return err
	}
	return configure(h, l, linkConfig{alias: v.Alias, up: v.Up})
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

// RemoveVLANs removes the VLAN links with the prefix in their alias from the caller's namespace.
func RemoveVLANs(aliasPrefix string) error {
	return withHandle(func(h *handle) error {
		links, err := h.LinkList()
		for _, l := range links {
			if _, is := isVLAN(l); !is || !strings.HasPrefix(l.Attrs().Alias, aliasPrefix) {
				continue
			}
			err = errors.Join(err, deleted("link "+l.Attrs().Name, h.LinkDel(l)))
		}
		return err
	})
}

// findVLAN finds the link by its name and alias. A link that is not isolated counts as down.
func findVLAN(h *handle, v wire.VLAN) (wire.VLAN, bool, error) {
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
		v.Parent = "" // the parent is another link
	}
	v.ID = vlan.VlanId
	v.Up = isUp(l) && isIsolated(l)
	return v, true, nil
}

// Limits of the kernel, in bytes.
const (
	maxAlias    = 255
	maxLinkName = 15
)

// tapPeers has the functions of tap peers that consider the changes of later plugins.
type tapPeers struct{ changes *ChainChanges }

func tapPeerDescriptor(o Options) kvscheduler.Descriptor[wire.TapPeer, netnsID] {
	p := tapPeers{o.ChainChanges}
	return kvscheduler.Descriptor[wire.TapPeer, netnsID]{
		Name: wire.KindTapPeer, Lane: Lane,
		Equal:    equalTapPeers,
		Validate: validateTapPeer,
		Deps: func(_ string, v wire.TapPeer) []kvscheduler.Dep {
			return linkDeps(kvscheduler.Ref{Kind: wire.KindInterface, Name: v.Interface}, kvscheduler.Part, v.Namespace)
		},
		Recreate: func(have, want wire.TapPeer) bool {
			return have.Namespace != want.Namespace || have.Name != want.Name
		},
		Disturbs: func(have, want wire.TapPeer) bool {
			had := have.MTU
			have.MTU = want.MTU
			return !onlyMTU(had, want.MTU, equalTapPeers(want, have))
		},
		After: []string{wire.KindNamespace},
		Backend: namespaced[wire.TapPeer]{
			kind:      wire.KindTapPeer,
			namespace: func(v wire.TapPeer) string { return v.Namespace },
			put:       func(h *handle, want wire.TapPeer) error { return p.configure(h, want, "") },
			change:    func(h *handle, have, want wire.TapPeer) error { return p.configure(h, want, have.Alias) },
			remove:    removeAlias,
			find:      p.find,
			compared:  p.compared,
			identity:  tapLink,
			overfull:  o.Overfull,
		},
	}
}

func validateTapPeer(name string, v wire.TapPeer) error {
	switch {
	case name != v.Interface:
		return fmt.Errorf("name %s is not that of the interface, %s", name, v.Interface)
	case !v.MAC.IsZero() && !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %s is not a unicast MAC", v.MAC)
	}
	return errors.Join(validateAlias(v.Alias), validateLink(v.Name))
}

func validateAlias(alias string) error {
	if alias == "" || len(alias) > maxAlias {
		return fmt.Errorf("alias %q does not have 1 to %d bytes", alias, maxAlias)
	}
	return nil
}

func validateLink(name string) error {
	if name == "" || len(name) > maxLinkName {
		return fmt.Errorf("link name %q does not have 1 to %d bytes", name, maxLinkName)
	}
	return nil
}

// foreignLink is the error for an existing link that does not belong to the object.
func foreignLink(l netlink.Link) error {
	if l.Attrs().Alias == "" {
		return fmt.Errorf("link %s already exists: a %s without an alias of Weft", l.Attrs().Name, l.Type())
	}
	return fmt.Errorf("link %s already exists: a %s that belongs to %q", l.Attrs().Name, l.Type(), l.Attrs().Alias)
}

// InTheWay returns an error that describes the link of a name in the network namespace at path, or in the agent's own
// for an empty path; nil without such a link, or if the answer is not known.
func InTheWay(path, name string) (err error) {
	_ = inNamespace(path, netnsID{}, func(h *handle) error { // without an answer nothing is described
		l, found := h.link(name)
		if found == nil {
			err = foreignLink(l)
		}
		return nil
	})
	return err
}

// equalTapPeers accepts any MAC and MTU of the kernel if want does not have them.
func equalTapPeers(want, have wire.TapPeer) bool {
	if want.MAC.IsZero() {
		want.MAC = have.MAC
	}
	if want.MTU == 0 {
		want.MTU = have.MTU
	}
	return want == have
}

// configure configures a tap's Linux end, which the dataplane made. It does not change links with another object's
// alias. oldAlias is the alias that the link may have.
func (p tapPeers) configure(h *handle, v wire.TapPeer, oldAlias string) error {
	l, err := h.link(v.Name)
	if h.ofPod && !mayConfigure(l, v, oldAlias) {
		known := v
		known.Alias = cmp.Or(oldAlias, v.Alias)
		if at, err := h.placeOf(tapLink(known)); err != nil || at == takenOver {
			return refused(err)
		}
	}
	if err != nil {
		return refused(err)
	}
	a := l.Attrs()
	if !isTap(l) {
		return permanent(fmt.Errorf("link %s is a %s, not a tap: the dataplane did not make it", v.Name, l.Type()))
	}
	if a.Alias != "" && a.Alias != v.Alias && a.Alias != oldAlias {
		return permanent(fmt.Errorf("link %s belongs to %q", v.Name, a.Alias))
	}
	mtu := p.changes.of(v.Interface).mtu(v.MTU)
	return configure(h, l, linkConfig{
		alias:     v.Alias,
		mac:       v.MAC,
		mtu:       mtu,
		up:        v.Up,
		harden:    true,
		namespace: v.Namespace,
	})
}

// mayConfigure reports whether a link is a tap that may be the Linux end of v, and a port of no other link. The end has
// an alias since its first configuration, when oldAlias is empty: a tap without one is then a tap of the pod.
func mayConfigure(l netlink.Link, v wire.TapPeer, oldAlias string) bool {
	if l == nil || !isTap(l) || l.Attrs().MasterIndex != 0 {
		return false
	}
	alias := l.Attrs().Alias
	return alias == v.Alias || alias == oldAlias
}

// linkConfig is the configuration of an existing link. The zero MAC, MTU and maxSegment keep the kernel's.
type linkConfig struct {
	alias string
	mac   netaddr.MAC
	mtu   int
	up    bool

	maxSegment int

	harden    bool   // see wire.Hardening
	namespace string // path; "" = the node's
}

// configure applies the settings that a link does not have yet.
func configure(h *handle, l netlink.Link, d linkConfig) error {
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
	if d.harden { // after the MTU: a link with an MTU below 1280 has no IPv6 settings
		if err := harden(l, d.namespace); err != nil {
			return err
		}
	}
	return setUp(h, l, d.up)
}

func setUp(h *handle, l netlink.Link, up bool) error {
	set := h.LinkSetDown
	word := "down"
	if up {
		set = h.LinkSetUp
		word = "up"
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

// removeAlias removes the alias from a link while its tap still exists.
func removeAlias(h *handle, v wire.TapPeer) error {
	l, err := h.link(v.Name)
	if err != nil || l.Attrs().Alias != v.Alias {
		return err
	}
	return h.LinkSetAlias(l, "")
}

// find finds the link by its name and alias. In a pod it does not find a link that the pod took over.
func (p tapPeers) find(h *handle, v wire.TapPeer) (wire.TapPeer, bool, error) {
	l, err := h.link(v.Name)
	if errors.Is(err, errNoLink) {
		return v, false, nil
	}
	if err != nil {
		return v, false, err
	}
	a := l.Attrs()
	if !isTap(l) || a.Alias != v.Alias || h.ofPod && a.MasterIndex != 0 {
		return v, false, nil
	}
	v.MAC = macOf(l)
	v.MTU = a.MTU
	v.Up = isUp(l)
	return v, true, nil
}

// compared returns a read link with the MTU to compare with the desired one.
func (p tapPeers) compared(h *handle, read, desired wire.TapPeer) wire.TapPeer {
	changes := p.changes.of(read.Interface)
	mtu := read.MTU
	if h.ofPod {
		mtu = changes.unlowered(mtu, desired.MTU)
	}
	read.MTU = changes.readMTU(mtu, desired.MTU)
	return read
}
