package linux

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
)

// ForgetPathMTU makes the kernel forget the MTU of the path to an address, which it learned from ICMP errors. With IPv6
// the kernel drops packets that it forwards if they exceed it, for ten minutes after the path was repaired. It does not
// matter to packets of IPv4 that the kernel forwards. An unknown MTU is no error.
func ForgetPathMTU(to netip.Addr) error {
	if to.Is4() {
		return nil
	}
	err := netlink.RouteDel(&netlink.Route{Dst: ipNet(netaddr.Single(to)), Flags: unix.RTM_F_CLONED})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("forget the MTU of the path to %s: %w", to, err)
	}
	return nil
}
