package scripts_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// meddleCommand makes changes to a sandbox behind Weft's back. Addresses and routes are IPv4.
//
//	meddle NAME remove address|route|neighbour   of eth0: its address, the default route, the gateway's neighbour entry
//	meddle NAME remove route DESTINATION [table N]  of eth0: that route
//	meddle NAME remove link                      eth0 itself
//	meddle NAME set mtu N | set mac MAC | set down
//	meddle NAME add link LINK                    a foreign link
//	meddle NAME add default LINK                 default routes through that link
//	meddle NAME add witness                      a veth, so that sandbox gone notices the end of the namespace
//	meddle dataplane remove route NAME           the route to the sandbox's address
func meddleCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		usage(ts, "meddle NAME remove|set|add ...")
	}
	s := on(ts)
	if args[0] == "dataplane" {
		ts.Check(s.removeRoute(s.sandbox(ts, args[len(args)-1])))
		return
	}
	b := s.sandbox(ts, args[0])
	if args[1] == "add" && args[2] == "witness" {
		ts.Check(s.addWitness(b))
		return
	}
	err := netns.Do(b.path, func() error { return meddle(args[1]+" "+args[2], args[3:]) })
	if err != nil {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
}

func meddle(what string, args []string) error {
	if change := additions[what]; change != nil {
		return change(args)
	}
	change := changes[what]
	if change == nil {
		return errUsage
	}
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	return change(link, args)
}

// changes are changes of eth0, additions are additions beside it.
var changes = map[string]func(link netlink.Link, args []string) error{
	"remove link":      func(link netlink.Link, _ []string) error { return netlink.LinkDel(link) },
	"remove address":   removeAddress,
	"remove route":     removeRoute,
	"remove neighbour": removeNeighbour,
	"set down":         func(link netlink.Link, _ []string) error { return netlink.LinkSetDown(link) },
	"set mtu":          setMTU,
	"set mac":          setMAC,
}

var additions = map[string]func(args []string) error{
	"add link":    addLink,
	"add default": addDefault,
}

func removeAddress(link netlink.Link, _ []string) error {
	addresses, err := netlink.AddrList(link, unix.AF_INET)
	if err != nil || len(addresses) == 0 {
		return errors.Join(err, errors.New("eth0 has no address"))
	}
	return netlink.AddrDel(link, &addresses[0])
}

func removeRoute(link netlink.Link, args []string) error {
	destination := append(args, "0.0.0.0/0")[0]
	in := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_MAIN}
	if len(args) == 3 && args[1] == "table" {
		if _, err := fmt.Sscan(args[2], &in.Table); err != nil {
			return err
		}
	}
	routes, err := netlink.RouteListFiltered(unix.AF_INET, in, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(routes, func(r netlink.Route) bool { return r.Dst.String() == destination })
	if i < 0 {
		return fmt.Errorf("no route to %s", destination)
	}
	return netlink.RouteDel(&routes[i])
}

func removeNeighbour(link netlink.Link, _ []string) error {
	neighbours, err := netlink.NeighList(link.Attrs().Index, unix.AF_INET)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(neighbours, func(n netlink.Neigh) bool { return n.State == netlink.NUD_PERMANENT })
	if i < 0 {
		return errors.New("there is no permanent neighbour")
	}
	return netlink.NeighDel(&neighbours[i])
}

func setMTU(link netlink.Link, args []string) error {
	var mtu int
	if _, err := fmt.Sscan(strings.Join(args, " "), &mtu); err != nil {
		return err
	}
	return netlink.LinkSetMTU(link, mtu)
}

func setMAC(link netlink.Link, args []string) error {
	mac, err := net.ParseMAC(strings.Join(args, " "))
	if err != nil {
		return err
	}
	return netlink.LinkSetHardwareAddr(link, mac)
}

func addLink(args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: args[0]}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		return err
	}
	link, err := netlink.LinkByName(args[0])
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func addDefault(args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	link, err := netlink.LinkByName(args[0])
	if err != nil {
		return err
	}
	for _, everything := range []*net.IPNet{
		{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
	} {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything}); err != nil {
			return err
		}
	}
	return nil
}
