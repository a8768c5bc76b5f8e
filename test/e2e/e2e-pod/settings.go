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
)

// ip adds a route. It takes the arguments of the program ip, as init containers of the examples do.
func ip(_ io.Writer, arguments []string) error {
	if len(arguments) != 5 || strings.Join([]string{arguments[0], arguments[1], arguments[3]}, " ") != "route add via" {
		return errors.New("usage: ip route add PREFIX via ADDRESS")
	}
	_, destination, err := net.ParseCIDR(arguments[2])
	if err != nil {
		return err
	}
	gateway := net.ParseIP(arguments[4])
	if gateway == nil {
		return fmt.Errorf("invalid address %q", arguments[4])
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
