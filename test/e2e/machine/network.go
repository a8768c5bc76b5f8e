package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

// card is the name of the network card on the machine.
const card = "eth0"

// socket returns the name of the card's peer on the bridge.
func (m *Machine) socket() string { return "to-" + m.Name }

// plugInLocked connects the machine to the bridge.
func (m *Machine) plugInLocked() error {
	pid := m.init.Process.Pid
	lab, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find the bridge: %w", err)
	}
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: m.socket(), MTU: mtu, MasterIndex: lab.Attrs().Index},
		PeerName:  card, PeerNamespace: netlink.NsPid(pid), PeerHardwareAddr: m.hardwareAddress(),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("plug the network in: %w", err)
	}
	if err := netlink.LinkSetUp(pair); err != nil {
		return fmt.Errorf("plug the network in: %w", err)
	}
	return within(pid, m.configureCard)
}

// hardwareAddress returns the card's MAC, the same after each boot.
func (m *Machine) hardwareAddress() net.HardwareAddr {
	four := m.Addresses[0].As4()
	return append(net.HardwareAddr{0x02, 0x00}, four[:]...) // 02: locally administered
}

// configureCard runs on the machine.
func (m *Machine) configureCard() error {
	link, err := netlink.LinkByName(card)
	if err != nil {
		return fmt.Errorf("find the card: %w", err)
	}
	var prefixes []netip.Prefix
	for i, a := range m.Addresses {
		prefixes = append(prefixes, netip.PrefixFrom(a, networks[i].Bits()))
	}
	if err := address(link, prefixes); err != nil {
		return err
	}
	for _, n := range networks {
		if err := netlink.RouteAdd(&netlink.Route{
			LinkIndex: link.Attrs().Index,
			Dst:       ipNet(anywhere(n.Addr())),
			Gw:        n.Addr().AsSlice(),
		}); err != nil {
			return fmt.Errorf("add the default route via %s: %w", n.Addr(), err)
		}
	}
	return nil
}

// unplug waits until the kernel has deleted the card with its namespace.
func (m *Machine) unplug() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		link, err := netlink.LinkByName(m.socket())
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err == nil {
			_ = netlink.LinkDel(link) // the kernel may delete it concurrently; the next check decides
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("unplug the network: %s still exists", m.socket())
		case <-tick.C:
		}
	}
}

// anywhere returns the prefix of a default route of the family of a.
func anywhere(a netip.Addr) netip.Prefix {
	if a.Is6() {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
