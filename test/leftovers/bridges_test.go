package leftovers_test

import (
	"testing"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/must"
)

func (p *planter) bridge(id uint32) {
	_, err := l2.NewServiceClient(p).BridgeDomainAddDelV2(p.t.Context(),
		&l2.BridgeDomainAddDelV2{
			BdID:    id,
			IsAdd:   true,
			Learn:   true,
			Flood:   true,
			UuFlood: true,
			Forward: true,
			MacAge:  5,
			BdTag:   "left",
		})
	must.Succeed(p.t, err)
}

func (p *planter) join(index interface_types.InterfaceIndex, kind l2.L2PortType) {
	_, err := l2.NewServiceClient(p).SwInterfaceSetL2Bridge(p.t.Context(),
		&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: index, BdID: 7, PortType: kind, Enable: true})
	must.Succeed(p.t, err)
}

func (p *planter) mac() {
	p.join(p.old, l2.L2_API_PORT_TYPE_NORMAL)
	_, err := l2.NewServiceClient(p).L2fibAddDel(p.t.Context(),
		&l2.L2fibAddDel{Mac: [6]byte{2, 0, 0, 0, 0, 9}, BdID: 7, SwIfIndex: p.old, IsAdd: true, StaticMac: true})
	must.Succeed(p.t, err)
}

// acl makes a MACIP ACL, and applies it to the loopback old if applied is true.
func (p *planter) acl(apply bool) {
	prefix, err := ip_types.ParsePrefix("192.0.2.9/32")
	must.Succeed(p.t, err)
	c := acl.NewServiceClient(p)
	rule := acl_types.MacipACLRule{IsPermit: acl_types.ACL_ACTION_API_PERMIT, SrcMac: [6]byte{2, 0, 0, 0, 0, 9},
		SrcMacMask: [6]byte{255, 255, 255, 255, 255, 255}, SrcPrefix: prefix}
	reply, err := c.MacipACLAdd(p.t.Context(), &acl.MacipACLAdd{
		Tag:   "left",
		R:     []acl_types.MacipACLRule{rule},
		Count: 1,
	})
	must.Succeed(p.t, err)
	if apply {
		_, err = c.MacipACLInterfaceAddDel(p.t.Context(), &acl.MacipACLInterfaceAddDel{
			IsAdd:     true,
			SwIfIndex: p.old,
			ACLIndex:  reply.ACLIndex,
		})
		must.Succeed(p.t, err)
	}
}

// ipACL makes an IP ACL, and applies it to the loopback old if applied is true.
func (p *planter) ipACL(apply bool) {
	source, err := ip_types.ParsePrefix("192.0.2.9/32")
	must.Succeed(p.t, err)
	all, err := ip_types.ParsePrefix("0.0.0.0/0")
	must.Succeed(p.t, err)
	c := acl.NewServiceClient(p)
	rule := acl_types.ACLRule{
		SrcPrefix:              source,
		DstPrefix:              all,
		Proto:                  ip_types.IP_API_PROTO_UDP,
		DstportOrIcmpcodeFirst: 68,
		DstportOrIcmpcodeLast:  68,
	}
	reply, err := c.ACLAddReplace(p.t.Context(), &acl.ACLAddReplace{
		ACLIndex: ^uint32(0),
		Tag:      "left",
		R:        []acl_types.ACLRule{rule},
		Count:    1,
	})
	must.Succeed(p.t, err)
	if apply {
		_, err = c.ACLInterfaceSetACLList(p.t.Context(), &acl.ACLInterfaceSetACLList{
			SwIfIndex: p.old,
			Count:     1,
			NInput:    1,
			Acls:      []uint32{reply.ACLIndex},
		})
		must.Succeed(p.t, err)
	}
}

func (p *planter) proxy(low, hi byte) {
	_, err := arp.NewServiceClient(p).ProxyArpAddDel(p.t.Context(), &arp.ProxyArpAddDel{IsAdd: true,
		Proxy: arp.ProxyArp{Low: ip_types.IP4Address{192, 0, 2, low}, Hi: ip_types.IP4Address{192, 0, 2, hi}}})
	must.Succeed(p.t, err)
}

func (p *planter) proxied() {
	_, err := arp.NewServiceClient(p).ProxyArpIntfcEnableDisable(p.t.Context(), &arp.ProxyArpIntfcEnableDisable{
		Enable:    true,
		SwIfIndex: p.old,
	})
	must.Succeed(p.t, err)
}

// afPacket makes an interface on a link of the namespace of test and dataplane.
func (p *planter) afPacket() {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left0"}, PeerName: "left1"}
	must.Succeed(p.t, netlink.LinkAdd(link))
	p.t.Cleanup(func() { _ = netlink.LinkDel(link) })
	must.Succeed(p.t, netlink.LinkSetUp(link))
	_, err := af_packet.NewServiceClient(p).AfPacketCreateV3(p.t.Context(), &af_packet.AfPacketCreateV3{
		Mode:            af_packet.AF_PACKET_API_MODE_ETHERNET,
		UseRandomHwAddr: true,
		HostIfName:      "left0",
		NumRxQueues:     1,
		NumTxQueues:     1})
	must.Succeed(p.t, err)
}

func TestSnapshotShowsLeftoverBridgeObjects(t *testing.T) {
	netnstest.Require(t)
	tests := []struct {
		kind  string
		plant func(*planter)
		line  string
	}{
		{"bridge domain", func(p *planter) { p.bridge(8) }, "+ bridge-domain dataplane 8 left learn true flood true true age 5 bvi"}, //nolint:dupword // the dump's text
		{
			"member", func(p *planter) { p.join(p.old, l2.L2_API_PORT_TYPE_NORMAL) },
			"+ bridge-member dataplane old of 7 split horizon 0",
		},
		{"BVI", func(p *planter) { p.join(p.old, l2.L2_API_PORT_TYPE_BVI) }, "+ bridge-domain dataplane 7 left learn true flood true true age 5 bvi old"}, //nolint:dupword // the dump's text
		{"static MAC", (*planter).mac, "+ l2fib dataplane 02:00:00:00:00:09 of 7 at old static true"},
		{"IP ACL", func(p *planter) { p.ipACL(false) }, "+ acl dataplane left 192.0.2.9/32 > 0.0.0.0/0 17 0-0 68-68 0"},
		{
			"IP ACL of an interface", func(p *planter) { p.ipACL(true) },
			"+ acl-interface dataplane old by left, 1 for input",
		},
		{
			"ACL", func(p *planter) { p.acl(false) },
			"+ macip-acl dataplane left 02:00:00:00:00:09/ff:ff:ff:ff:ff:ff 192.0.2.9/32 1",
		},
		{"ACL of an interface", func(p *planter) { p.acl(true) }, "+ macip-interface dataplane old by left"},
		{"proxied ARP", func(p *planter) { p.proxy(4, 9) }, "+ proxy-arp dataplane table 0 192.0.2.4 to 192.0.2.9"},
		{"interface with proxied ARP", (*planter).proxied, "+ proxy-arp dataplane on old"},
		{"af_packet interface", (*planter).afPacket, "+ af-packet dataplane host-left0 on left0"},
	}
	for _, tt := range tests {
		t.Run(tt.kind, func(t *testing.T) {
			p, socket := newPlanter(t)
			p.bridge(7)
			places := leftovers.Places{Dataplane: socket}
			before, err := leftovers.Take(t.Context(), places)
			must.Succeed(t, err)
			tt.plant(p)
			after, err := leftovers.Take(t.Context(), places)
			must.Succeed(t, err)
			if lines := after.Since(before); !anyBegins(lines, tt.line) {
				t.Errorf("no line begins with %q: %q", tt.line, lines)
			}
		})
	}
}
