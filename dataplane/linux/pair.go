package linux

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// pair is a veth with what later plugins changed of the pod's end.
type pair struct {
	wire.Veth
	later Changes
}

// realise makes a pair, or finishes what is there of it. It touches no foreign link; was is the alias
// that we gave ours before.
func (p pair) realise(home *handle, was string, place Place) error {
	v := p.Veth
	l, err := home.link(v.HostName)
	if err == nil && !isOurVeth(l, v, was) {
		return permanent(fmt.Errorf("link %s is there already, a %s that belongs to %q", v.HostName, l.Type(), l.Attrs().Alias))
	}
	if err != nil && !errors.Is(err, errNoLink) {
		return refused(err)
	}
	whole := false
	if err := visit(v.Namespace, place, func(h *handle) (err error) {
		whole, err = clearVeth(h, l, v, was)
		return err
	}); err != nil {
		return refused(err)
	}
	if whole && hasQueues(l, v) {
		return p.finish(home, l, place)
	}
	if l != nil {
		if err := home.LinkDel(l); err != nil && !isGone(err) {
			return refused(fmt.Errorf("remove veth %s, which is not as it should be: %w", v.HostName, err))
		}
		delete(home.links, v.HostName)
	}
	return p.add(home, place)
}

// clearVeth looks at the pod's end: whole says that it is there, as the other end of host. What is left of an older pair
// of ours is removed.
func clearVeth(h *handle, host netlink.Link, v wire.Veth, was string) (whole bool, err error) {
	l, err := h.link(v.Name)
	if errors.Is(err, errNoLink) {
		return false, nil
	}
	if err != nil || host != nil && isPair(host, l) {
		return err == nil, err
	}
	alias := l.Attrs().Alias
	if l.Type() != (&netlink.Veth{}).Type() || alias == "" || alias != v.Alias && alias != was {
		return false, permanent(fmt.Errorf("link %s in network namespace %s is there already, a %s that belongs to %q", v.Name, v.Namespace, l.Type(), alias))
	}
	if err := h.LinkDel(l); err != nil {
		return false, fmt.Errorf("remove veth %s in network namespace %s, whose other end is not where it was: %w", v.Name, v.Namespace, err)
	}
	return false, nil
}

// isPair tells whether each of two links names the other as its peer.
func isPair(a, b netlink.Link) bool {
	return a.Type() == b.Type() && a.Attrs().ParentIndex == b.Attrs().Index && b.Attrs().ParentIndex == a.Attrs().Index
}

// add makes both ends where they stay, in one message: a link that moves loses what it has, and for a while belongs
// to nobody.
func (p pair) add(home *handle, place Place) error {
	v := p.Veth
	attrs := netlink.NewLinkAttrs() // the kernel's length of a queue; the zero value would be none at all
	attrs.Name, attrs.HardwareAddr, attrs.MTU = v.HostName, kernelMAC(v.HostMAC), v.MTU
	link := netlink.NewVeth(attrs)
	link.PeerName, link.PeerHardwareAddr, link.PeerMTU = v.Name, kernelMAC(v.MAC), uint32(v.MTU)
	if v.Namespace != "" {
		fd, there, err := open(v.Namespace)
		if err != nil {
			return refused(err)
		}
		defer unix.Close(fd)
		if place != (Place{}) && there != place {
			return permanent(fmt.Errorf("network namespace %s %w: another one has taken its path", v.Namespace, ErrGone))
		}
		link.PeerNamespace = netlink.NsFd(fd)
	}
	addQueues(link, v)
	if err := home.LinkAdd(link); err != nil {
		return refused(fmt.Errorf("create veth %s with its other end %s in network namespace %s: %w", v.HostName, v.Name, v.Namespace, err))
	}
	l, err := home.link(v.HostName)
	if err == nil {
		err = p.finish(home, l, place)
	}
	if err == nil {
		return nil
	}
	if undo := home.LinkDel(link); undo != nil && !isGone(undo) {
		return fmt.Errorf("%w, and removing it again: %w", err, undo)
	}
	return refused(err)
}

// addQueues asks for several queues. The host's end writes to those that the pod reads from. What is left out would be
// another end's number, or as many as there are processors.
func addQueues(pair *netlink.Veth, v wire.Veth) {
	if v.RxQueues == 0 && v.TxQueues == 0 {
		return
	}
	rx, tx := max(v.RxQueues, 1), max(v.TxQueues, 1)
	pair.PeerNumRxQueues, pair.PeerNumTxQueues = uint32(rx), uint32(tx)
	pair.NumRxQueues, pair.NumTxQueues = tx, rx
}

// hasQueues tells whether a host's end has as many queues as are wanted.
func hasQueues(host netlink.Link, v wire.Veth) bool {
	now := readQueues(host, v)
	return now.RxQueues == v.RxQueues && now.TxQueues == v.TxQueues
}

// readQueues is v with the queues of the pair that a host's end is of. Of a pair for which none were asked the kernel tells
// how many it could have: that is not looked at.
func readQueues(host netlink.Link, v wire.Veth) wire.Veth {
	a := host.Attrs()
	if v.RxQueues > 0 {
		v.RxQueues = a.NumTxQueues
	}
	if v.TxQueues > 0 {
		v.TxQueues = a.NumRxQueues
	}
	return v
}

// finish gives both ends what they lack.
func (p pair) finish(home *handle, host netlink.Link, place Place) error {
	v := p.Veth
	if err := seal(home, host); err != nil {
		return err
	}
	if err := dress(home, host, dressing{alias: v.Alias, mac: v.HostMAC, mtu: v.MTU, up: v.Up}); err != nil {
		return err
	}
	if err := seal(home, host); err != nil { // again: an MTU raised to 1280 has brought IPv6 back with the kernel's defaults
		return err
	}
	return visit(v.Namespace, place, func(h *handle) error {
		l, err := h.link(v.Name)
		if err != nil {
			return err
		}
		return dress(h, l, dressing{
			alias: v.Alias, mac: v.MAC, mtu: p.later.wanted(v.MTU), up: v.Up, maxSegment: v.MaxSegment, harden: true, namespace: v.Namespace,
		})
	})
}

// seals are the settings that keep the kernel of the host from what a pod sends: it is the dataplane's to judge. Strict
// reverse path filtering drops all that comes by a link that no route leads through; where the host filters all links
// loosely, which wins, the other two still keep packets from what is behind the host and from broadcasts.
var seals = []struct{ setting, value string }{
	{"ipv6/conf/%s/addr_gen_mode", "1"}, // none, for when IPv6 is enabled for all links at once
	{"ipv6/conf/%s/disable_ipv6", "1"},
	{"ipv4/conf/%s/rp_filter", "1"},
	{"ipv4/conf/%s/forwarding", "0"},
	{"ipv4/conf/%s/drop_unicast_in_l2_multicast", "1"},
}

// seal makes the host's end deaf but for the dataplane. It runs where that end is.
func seal(home *handle, l netlink.Link) error {
	if l.Attrs().RawFlags&unix.IFF_NOARP == 0 {
		if err := home.LinkSetARPOff(l); err != nil {
			return fmt.Errorf("set ARP off on %s: %w", l.Attrs().Name, err)
		}
	}
	for _, s := range seals {
		file := "/proc/sys/net/" + fmt.Sprintf(s.setting, l.Attrs().Name)
		if isSet(file, s.value) {
			continue
		}
		if err := os.WriteFile(file, []byte(s.value), 0); err != nil {
			return fmt.Errorf("keep the kernel from what comes by %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}

func isSealed(l netlink.Link) bool {
	sealed := l.Attrs().RawFlags&unix.IFF_NOARP != 0
	for _, s := range seals {
		sealed = sealed && isSet("/proc/sys/net/"+fmt.Sprintf(s.setting, l.Attrs().Name), s.value)
	}
	return sealed
}

// isSet reads a setting; one that the kernel does not have, as without IPv6, needs not be set.
func isSet(file, value string) bool {
	now, err := os.ReadFile(file)
	return errors.Is(err, os.ErrNotExist) || err == nil && string(now) == value+"\n"
}

// read is the pair of a host's end as it is. Of one without a pod's end, as of one whose namespace is gone, the name
// in the pod is empty; one that is not sealed is not up.
func (p pair) read(host netlink.Link, place Place) (wire.Veth, error) {
	a, want := host.Attrs(), p.Veth
	v := readQueues(host, want)
	v.Name, v.HostMAC, v.MTU, v.Alias, v.Up = "", macOf(host), a.MTU, a.Alias, isUp(host) && isSealed(host)
	if want.Namespace != "" && place == (Place{}) {
		return v, nil
	}
	err := visit(v.Namespace, place, func(h *handle) error {
		l, err := h.link(want.Name)
		if err != nil || !isPair(host, l) {
			return err
		}
		a := l.Attrs()
		v.Name, v.MAC, v.Up = want.Name, macOf(l), v.Up && isUp(l)
		if want.MaxSegment != 0 {
			v.MaxSegment = int(a.GSOMaxSize)
		}
		if want.MTU == v.MTU { // of two ends the one that is not as it should be tells
			v.MTU = p.later.read(a.MTU, want.MTU)
		}
		if want.Alias == v.Alias {
			v.Alias = a.Alias
		}
		return nil
	})
	if isGone(err) {
		err = nil
	}
	return v, err
}

// macOf is the zero MAC for a link that has none of six bytes.
func macOf(l netlink.Link) (mac wire.MAC) {
	if a := l.Attrs().HardwareAddr; len(a) == len(mac) {
		mac = wire.MAC(a)
	}
	return mac
}

// kernelMAC is nil for the zero MAC: the kernel chooses.
func kernelMAC(m wire.MAC) net.HardwareAddr {
	if m.IsZero() {
		return nil
	}
	return m[:]
}
