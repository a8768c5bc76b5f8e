package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bindMachine does what KubeVirt's bridge binding does (virt-launcher) with a pod's eth0, in the pod's namespace: it
// becomes the port eth0-nic of a bridge, with another MAC; the name eth0 is that of a link with the pod's addresses;
// the machine has the pod's MAC, addresses and routes. The machine is a network namespace. The caller's thread must end
// afterwards.
func bindMachine(netns string, machine *os.File) error {
	if err := enterNamespace(netns); err != nil {
		return err
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	addresses, err := netlink.AddrList(eth0, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	routes, err := netlink.RouteList(eth0, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	neighbours, err := netlink.NeighList(eth0.Attrs().Index, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	if err := bridgeOf(eth0, addresses, machine); err != nil {
		return err
	}
	if err := unix.Setns(int(machine.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return configure("enp1s0", addresses, neighbours, routes)
}

// bridgeOf makes the bridge with the ports eth0-nic and tap0, whose other end is the machine's.
func bridgeOf(eth0 netlink.Link, addresses []netlink.Addr, machine *os.File) error {
	mac := eth0.Attrs().HardwareAddr
	errs := []error{netlink.LinkSetDown(eth0)}
	for _, a := range addresses {
		errs = append(errs, netlink.AddrDel(eth0, &netlink.Addr{IPNet: a.IPNet}))
	}
	bridge := &netlink.Bridge{
		LinkAttrs: netlink.LinkAttrs{Name: "k6t-eth0", HardwareAddr: net.HardwareAddr{2, 7, 7, 7, 7, 8}},
	}
	errs = append(errs, netlink.LinkSetName(eth0, "eth0-nic"),
		netlink.LinkSetHardwareAddr(eth0, net.HardwareAddr{2, 7, 7, 7, 7, 7}), netlink.LinkAdd(bridge))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	pair := netlink.NewVeth(netlink.LinkAttrs{Name: "tap0", MasterIndex: bridge.Attrs().Index})
	pair.PeerName = "enp1s0"
	pair.PeerHardwareAddr = mac
	pair.PeerNamespace = netlink.NsFd(machine.Fd())
	// a dummy in KubeVirt; not all kernels have them
	named := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
	errs = []error{
		netlink.LinkSetMaster(eth0, bridge), netlink.LinkSetUp(eth0), netlink.LinkSetUp(bridge), netlink.LinkAdd(pair),
		netlink.LinkSetUp(pair), netlink.LinkAdd(named),
	}
	for _, a := range addresses {
		errs = append(errs, netlink.AddrAdd(named, &netlink.Addr{IPNet: a.IPNet}))
	}
	return errors.Join(errs...)
}

// configure gives the link of a name what another one had.
func configure(name string, addresses []netlink.Addr, neighbours []netlink.Neigh, routes []netlink.Route) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	errs := []error{netlink.LinkSetUp(link)}
	for _, a := range addresses {
		errs = append(errs, netlink.AddrAdd(link, &netlink.Addr{IPNet: a.IPNet}))
	}
	for _, n := range neighbours {
		if n.State&netlink.NUD_PERMANENT != 0 {
			n.LinkIndex = link.Attrs().Index
			errs = append(errs, netlink.NeighSet(&n))
		}
	}
	for _, behind := range []bool{false, true} { // a gateway first
		for _, r := range routes {
			if (r.Gw != nil) == behind {
				r.LinkIndex = link.Attrs().Index
				r.Flags = r.Flags & int(netlink.FLAG_ONLINK)
				errs = append(errs, netlink.RouteReplace(&r))
			}
		}
	}
	return errors.Join(errs...)
}

// newNamespace returns a new network namespace, which exists until the test ends.
func (s *space) newNamespace(node string) *os.File {
	s.t.Helper()
	process := exec.Command("/bin/sleep", "3600")
	process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	s.must(s.c.Node(node).Start(process))
	s.t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait() // it was killed
	})
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", process.Process.Pid))
	s.must(err)
	s.t.Cleanup(func() { _ = f.Close() })
	return f
}

func enterNamespace(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

// The pod's address is that of a virtual machine, as with KubeVirt's bridge binding: it is reached, nothing is
// repaired, and its DEL leaves nothing.
func TestVirtualMachineHasThePodsInterface(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	client, server := s.pair("n2", "n1")
	list, err := s.attachments(t.Context(), "n1")
	s.must(err)
	had := of(list, server.Name)
	if had == nil {
		t.Fatalf("attachments of n1: %+v", list)
	}
	address := s.addresses(server)[0].String()
	machine := s.newNamespace("n1")
	s.must(s.c.Node("n1").Do(func() error { return bindMachine(had.Netns, machine) }))
	for range 3 {
		if output := s.exec(client, "ping", address, "3"); !strings.Contains(output, " answers 3 in ") {
			t.Errorf("output %q", output)
		}
		if done := s.resync("n1"); len(done) > 0 {
			t.Errorf("a resync repaired %+v", done)
		}
	}
	s.condition("n1", "repaired", true)
	s.must(s.c.Client.CoreV1().Pods(server.Namespace).Delete(context.Background(), server.Name, metav1.DeleteOptions{}))
	s.deleteAll()
	s.mustLeaveNothing()
}
