package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Config is the configuration of all machines of a lab.
type Config struct {
	// Disk is the directory of their disks, Logs the directory of their programs' output.
	Disk, Logs string
	// Cgroup is the parent of their cgroups.
	Cgroup string
	// Shared are directories of the host that all of them see, read only.
	Shared []string
	// Env is the environment of their programs.
	Env []string
}

const (
	bridge = "lab0"
	// mtu is the MTU of Ethernet.
	mtu = 1500
)

// The lab's networks; the first address of each is this process's, the machines' router.
var networks = []netip.Prefix{netip.MustParsePrefix("10.200.0.1/24"), netip.MustParsePrefix("fd00:200::1/64")}

// Lab is a set of machines on one bridge, in the network namespace of this process.
type Lab struct {
	config   Config
	machines []*Machine
}

// NewLab makes the bridge.
func NewLab(c Config) (*Lab, error) {
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge, MTU: mtu}}
	if err := netlink.LinkAdd(link); err != nil {
		return nil, fmt.Errorf("make the bridge between machines: %w", err)
	}
	if err := address(link, networks); err != nil {
		return nil, fmt.Errorf("make the bridge between machines: %w", err)
	}
	return &Lab{config: c}, nil
}

// Router returns the addresses of this process for machines, IPv4 first.
func (l *Lab) Router() []netip.Addr {
	var all []netip.Addr
	for _, n := range networks {
		all = append(all, n.Addr())
	}
	return all
}

// Add adds a machine, which is off.
func (l *Lab) Add(name string) *Machine {
	m := &Machine{Name: name, lab: l, disk: filepath.Join(l.config.Disk, name)}
	for _, n := range networks {
		last := n.Addr().AsSlice()
		last[len(last)-1] += byte(10 + len(l.machines))
		a, _ := netip.AddrFromSlice(last) // has the length of an address
		m.Addresses = append(m.Addresses, a)
	}
	l.machines = append(l.machines, m)
	return m
}

// Route adds or replaces this process's route to a network behind a machine.
func Route(to netip.Prefix, via netip.Addr) error {
	if err := netlink.RouteReplace(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("route %s via %s: %w", to, via, err)
	}
	return nil
}

// Route adds or replaces this machine's route to a network behind another one.
func (m *Machine) Route(to netip.Prefix, via netip.Addr) error {
	return m.Do(func() error { return Route(to, via) })
}

// Close cuts the power of all machines.
func (l *Lab) Close() error {
	var failed error
	for _, m := range l.machines {
		failed = errors.Join(failed, m.Cut())
	}
	return failed
}

// address adds addresses to a link and sets it up. A lab's bridge has no other hosts, so duplicate address detection,
// which takes seconds, is not needed.
func address(link netlink.Link, prefixes []netip.Prefix) error {
	name := link.Attrs().Name
	if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "accept_dad"), []byte("0"),
		0o644); err != nil {
		return fmt.Errorf("configure %s: %w", name, err)
	}
	for _, p := range prefixes {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("add address %[2]s to %[1]s: %[3]w", name, p, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("raise %s: %w", name, err)
	}
	return nil
}
