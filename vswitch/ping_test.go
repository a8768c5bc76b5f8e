package vswitch

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/internal/netnstest"
)

// pod is a network namespace with a tap's host side in it, and the dataplane's side in a subnet of its own.
type pod struct {
	netns string
	index interface_types.InterfaceIndex
	n     int
}

func addPod(t *testing.T, conn api.Connection, n int, flags tapv2.TapFlags) pod {
	t.Helper()
	p := pod{netns: netnstest.New(t), n: n}
	reply, err := tapv2.NewServiceClient(conn).TapCreateV3(t.Context(), &tapv2.TapCreateV3{ID: ^uint32(0), UseRandomMac: true,
		HostNamespaceSet: true, HostNamespace: p.netns, HostIfNameSet: true, HostIfName: "eth0", TapFlags: flags,
		HostMtuSet: true, HostMtuSize: 1500, Tag: fmt.Sprintf("pod%d", n)})
	if err != nil {
		t.Fatal("create tap:", err)
	}
	p.index = reply.SwIfIndex
	c := interfaces.NewServiceClient(conn)
	if _, err := c.SwInterfaceSetFlags(t.Context(), &interfaces.SwInterfaceSetFlags{SwIfIndex: p.index,
		Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}); err != nil {
		t.Fatal("set up:", err)
	}
	for _, gateway := range []string{p.prefix4(1), p.prefix6(1)} {
		if _, err := c.SwInterfaceAddDelAddress(t.Context(), &interfaces.SwInterfaceAddDelAddress{SwIfIndex: p.index,
			IsAdd: true, Prefix: addressWithPrefix(t, gateway)}); err != nil {
			t.Fatal("add address:", err)
		}
	}
	netnstest.Do(t, p.netns, func() { p.configure(t) })
	return p
}

func (p pod) prefix4(host int) string { return fmt.Sprintf("10.0.%d.%d/24", p.n, host) }
func (p pod) prefix6(host int) string { return fmt.Sprintf("fd00:%d::%d/64", p.n, host) }

// configure gives the kernel's side its addresses and default routes.
func (p pod) configure(t *testing.T) {
	t.Helper()
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []string{p.prefix4(2), p.prefix6(2)} {
		a, err := netlink.ParseAddr(own)
		if err != nil {
			t.Fatal(err)
		}
		a.Flags = 0x02 // IFA_F_NODAD: usable at once
		if err := netlink.AddrAdd(link, a); err != nil {
			t.Fatal("add", own, err)
		}
	}
	for _, gateway := range []string{p.prefix4(1), p.prefix6(1)} {
		via := netip.MustParsePrefix(gateway).Addr()
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: via.AsSlice()}); err != nil {
			t.Fatal("route via", gateway, err)
		}
	}
}

func addressWithPrefix(t *testing.T, s string) ip_types.AddressWithPrefix {
	t.Helper()
	p, err := ip_types.ParseAddressWithPrefix(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ping is the kernel's own stack asking.
func ping(t *testing.T, from pod, to string) {
	t.Helper()
	to, _, _ = strings.Cut(to, "/")
	netnstest.Do(t, from.netns, func() {
		out, err := exec.Command("ping", "-c", "3", "-i", "0.05", "-W", "2", to).CombinedOutput()
		if err != nil {
			t.Errorf("ping %s: %v\n%s", to, err, out)
		}
	})
}

func TestPodsPingEachOtherThroughTheDataplane(t *testing.T) {
	netnstest.Require(t)
	if _, err := exec.LookPath("ping"); err != nil {
		t.Skip("needs the ping command:", err)
	}
	conn := start(t).connect(t)
	a, b := addPod(t, conn, 1, tapv2.TAP_API_FLAG_GSO), addPod(t, conn, 2, 0)
	ping(t, a, a.prefix4(1)) // the gateway
	ping(t, a, b.prefix4(2))
	ping(t, b, a.prefix4(2))
	ping(t, a, b.prefix6(2))
	ping(t, b, b.prefix6(1))
}

func TestADeletedTapLeavesThePodsNamespace(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	p := addPod(t, conn, 1, 0)
	if _, err := tapv2.NewServiceClient(conn).TapDeleteV2(t.Context(), &tapv2.TapDeleteV2{SwIfIndex: p.index}); err != nil {
		t.Fatal(err)
	}
	netnstest.Do(t, p.netns, func() {
		if _, err := netlink.LinkByName("eth0"); err == nil {
			t.Error("eth0 is still there")
		}
	})
}

func TestTheTapsGoWithTheDataplane(t *testing.T) {
	netnstest.Require(t)
	r := start(t)
	p := addPod(t, r.connect(t), 1, 0)
	r.stop()
	r.done <- <-r.done
	netnstest.Do(t, p.netns, func() {
		if _, err := netlink.LinkByName("eth0"); err == nil {
			t.Error("eth0 is still there")
		}
	})
}

func TestAMissingNamespaceIsVPPsErrorAndLeavesNothing(t *testing.T) {
	conn := start(t).connect(t)
	_, err := tapv2.NewServiceClient(conn).TapCreateV3(t.Context(), &tapv2.TapCreateV3{ID: ^uint32(0), UseRandomMac: true,
		HostNamespaceSet: true, HostNamespace: filepath.Join(t.TempDir(), "none")})
	if want := api.SYSCALL_ERROR_2; err != want { //nolint:errorlint // govpp returns the number itself
		t.Fatalf("want %v, got %v", want, err)
	}
}
