package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ip changes a route or an address of the pod.
func ip(_ io.Writer, arguments []string) error {
	words := strings.Join(arguments, " ")
	var prefix, by string
	if n, _ := fmt.Sscanf(words, "route add %s via %s", &prefix, &by); n == 2 {
		return addRoute(prefix, by)
	}
	change := netlink.AddrDel
	n, _ := fmt.Sscanf(words, "address del %s dev %s", &prefix, &by)
	if n != 2 {
		change = netlink.AddrAdd
		n, _ = fmt.Sscanf(words, "address add %s dev %s", &prefix, &by)
	}
	if n != 2 {
		return errors.New("usage: ip route add PREFIX via ADDRESS | ip address add|del PREFIX dev LINK")
	}
	link, err := netlink.LinkByName(by)
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	address.Flags = unix.IFA_F_NODAD // another pod may have had it a moment before
	return change(link, address)
}

func addRoute(prefix, via string) error {
	_, destination, err := net.ParseCIDR(prefix)
	if err != nil {
		return err
	}
	gateway := net.ParseIP(via)
	if gateway == nil {
		return fmt.Errorf("invalid address %q", via)
	}
	return netlink.RouteAdd(&netlink.Route{Dst: destination, Gw: gateway})
}

// sysctl sets a value of the pod's kernel.
func sysctl(out io.Writer, arguments []string) error {
	if len(arguments) != 2 || arguments[0] != "-w" {
		return errors.New("usage: sysctl -w KEY=VALUE")
	}
	key, value, found := strings.Cut(arguments[1], "=")
	if !found {
		return fmt.Errorf("sysctl %s: no value", arguments[1])
	}
	if err := os.WriteFile(filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/")), []byte(value), 0o644); err != nil { //nolint:gosec // of the kernel
		return err
	}
	_, err := fmt.Fprintf(out, "%s = %s\n", key, value)
	return err
}
