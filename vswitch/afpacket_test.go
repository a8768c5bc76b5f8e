package vswitch

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/internal/netnstest"
)

// addVethPod is addPod over a veth pair with one end in the dataplane's namespace.
func addVethPod(t *testing.T, conn govpp.Connection, n int, flags af_packet.AfPacketFlags) pod {
	t.Helper()
	hostEnd := fmt.Sprintf("weft%d", n)
	p := pod{netns: netnstest.New(t), n: n}
	there, err := os.Open(p.netns)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	pair := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: hostEnd, MTU: 1500},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsFd(int(there.Fd())),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(pair) })
	netnstest.Do(t, p.netns, func() {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	reply, err := af_packet.NewServiceClient(conn).AfPacketCreateV3(t.Context(), &af_packet.AfPacketCreateV3{
		Mode: af_packet.AF_PACKET_API_MODE_ETHERNET, HostIfName: hostEnd, UseRandomHwAddr: true, Flags: flags})
	if err != nil {
		t.Fatal("attach to link:", err)
	}
	p.index = reply.SwIfIndex
	gateways(t, conn, p)
	netnstest.Do(t, p.netns, func() { p.onLink(t, 2) })
	return p
}

// gateways configures the dataplane's side, as addPod does.
func gateways(t *testing.T, conn govpp.Connection, p pod) {
	t.Helper()
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
}

func TestPodsOnVethsReachOtherPods(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	offload := af_packet.AF_PACKET_API_FLAG_CKSUM_GSO | af_packet.AF_PACKET_API_FLAG_QDISC_BYPASS
	a := addVethPod(t, conn, 1, offload)
	b := addVethPod(t, conn, 2, 0)
	c := addPod(t, conn, 3, tapv2.TAP_API_FLAG_GSO)
	for _, to := range []pod{b, c} {
		ping(t, a, to.prefix4(2))
		ping(t, to, a.prefix6(2))
		transfer(t, a, to)
		transfer(t, to, a)
	}
}

// rulesOf are the MACIP rules of a pod for its own addresses.
func rulesOf(t *testing.T, p pod) []acl_types.MacipACLRule {
	t.Helper()
	var mac ethernet_types.MacAddress
	netnstest.Do(t, p.netns, func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		copy(mac[:], link.Attrs().HardwareAddr)
	})
	var rules []acl_types.MacipACLRule
	for _, prefix := range []string{p.prefix4(2), p.prefix6(2), "fe80::/10"} {
		parsed, err := ip_types.ParsePrefix(prefix)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Address.Af == ip_types.ADDRESS_IP4 {
			parsed.Len = 32
		} else if parsed.Len == 64 {
			parsed.Len = 128
		}
		rules = append(rules, acl_types.MacipACLRule{IsPermit: acl_types.ACL_ACTION_API_PERMIT, SrcMac: mac,
			SrcMacMask: ethernet_types.MacAddress{255, 255, 255, 255, 255, 255}, SrcPrefix: parsed})
	}
	return rules
}

func TestMACIPPreventsSpoofing(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	a := addVethPod(t, conn, 1, af_packet.AF_PACKET_API_FLAG_CKSUM_GSO)
	b := addPod(t, conn, 2, 0)
	acls := acl.NewServiceClient(conn)
	set := func(index uint32, rules []acl_types.MacipACLRule) uint32 {
		t.Helper()
		reply, err := acls.MacipACLAddReplace(t.Context(), &acl.MacipACLAddReplace{ACLIndex: index, Tag: "a", R: rules})
		if err != nil {
			t.Fatal(err)
		}
		return reply.ACLIndex
	}
	list := set(^uint32(0), rulesOf(t, a))
	if _, err := acls.MacipACLInterfaceAddDel(t.Context(), &acl.MacipACLInterfaceAddDel{
		IsAdd:     true,
		SwIfIndex: a.index,
		ACLIndex:  list,
	}); err != nil {
		t.Fatal(err)
	}
	ping(t, a, b.prefix4(2))
	ping(t, a, b.prefix6(2))
	transfer(t, b, a)
	set(list, rulesOf(t, a)[1:])
	if !silent(t, a, b) {
		t.Error("a pod without its address is answered")
	}
	ping(t, a, b.prefix6(2))
	if _, err := acls.MacipACLDel(t.Context(), &acl.MacipACLDel{ACLIndex: list}); err != nil {
		t.Fatal(err)
	}
	ping(t, a, b.prefix4(2))
}

// The dataplane reports that a link was deleted and created again.
func TestRecreatedLinkIsAttachedAgain(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	a := addVethPod(t, conn, 1, 0)
	b := addPod(t, conn, 2, 0)
	ping(t, b, a.prefix4(2))
	link, err := netlink.LinkByName("weft1")
	if err != nil {
		t.Fatal(err)
	}
	up := func() bool {
		s, err := interfaces.NewServiceClient(conn).SwInterfaceDump(t.Context(), &interfaces.SwInterfaceDump{
			SwIfIndex: a.index,
		})
		if err != nil {
			t.Fatal(err)
		}
		flags := interface_types.IfStatusFlags(0)
		for d, err := s.Recv(); err == nil; d, err = s.Recv() {
			flags = d.Flags
		}
		return flags&interface_types.IF_STATUS_API_FLAG_LINK_UP != 0
	}
	if err := netlink.LinkSetDown(link); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return !up() })
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	eventually(t, up)
	ping(t, b, a.prefix4(2))
}

// silent reports whether an echo request gets no answer, not even an ICMP error.
func silent(t *testing.T, from, to pod) bool {
	t.Helper()
	address := netip.MustParsePrefix(to.prefix4(2)).Addr().String() + ":9"
	var err error
	netnstest.Do(t, from.netns, func() { _, err = net.DialTimeout("tcp4", address, time.Second) })
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
