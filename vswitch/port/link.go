package port

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

const defaultHostMTU = 1500

// configure configures the kernel's side of a tap and describes it. The thread must be in the tap's namespace.
func configure(name string, c TapConfig) (TapInfo, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return TapInfo{}, fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	link, err := h.LinkByName(name)
	if err != nil {
		return TapInfo{}, fmt.Errorf("find link: %w", err)
	}
	if !c.HostMAC.IsZero() {
		if err := h.LinkSetHardwareAddr(link, c.HostMAC.HardwareAddr()); err != nil {
			return TapInfo{}, fmt.Errorf("set MAC %s: %w", c.HostMAC, err)
		}
	}
	if c.HostMTU == 0 {
		c.HostMTU = defaultHostMTU
	}
	if err := h.LinkSetMTU(link, c.HostMTU); err != nil {
		return TapInfo{}, fmt.Errorf("set MTU %d: %w", c.HostMTU, err)
	}
	for _, a := range c.HostAddresses {
		if err := h.AddrAdd(link, address(a)); err != nil {
			return TapInfo{}, fmt.Errorf("add address %s: %w", a, err)
		}
	}
	if c.Up {
		if err := h.LinkSetUp(link); err != nil {
			return TapInfo{}, fmt.Errorf("set up: %w", err)
		}
	}
	return describe(h, name)
}

func describe(h *netlink.Handle, name string) (TapInfo, error) {
	link, err := h.LinkByName(name)
	if err != nil {
		return TapInfo{}, fmt.Errorf("find link: %w", err)
	}
	a := link.Attrs()
	mac, _ := frame.MACOf(a.HardwareAddr)
	return TapInfo{Name: a.Name, Ifindex: a.Index, HostMAC: mac, HostMTU: a.MTU}, nil
}

// address skips duplicate address detection: the dataplane is the only neighbour and knows the address.
func address(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}
