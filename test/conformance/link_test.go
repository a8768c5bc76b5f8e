package conformance

import (
	"os"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/weftnet/weft/internal/netnstest"
)

// veth makes a pair: name in the dataplane's namespace, eth0 in a new one, both up.
func (l *lab) veth(name string) (netns string) {
	l.Helper()
	netns = netnstest.New(l.T)
	netnstest.Do(l.T, netns, func() { l.quiet("default") })
	there, err := os.Open(netns)
	if err != nil {
		l.Fatal(err)
	}
	defer there.Close()
	pair := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: name, MTU: 1500},
		PeerName:      "eth0",
		PeerMTU:       1500,
		PeerNamespace: netlink.NsFd(int(there.Fd())),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = netlink.LinkDel(pair) })
	l.quiet(name)
	if err := netlink.LinkSetUp(pair); err != nil {
		l.Fatal(err)
	}
	netnstest.Do(l.T, netns, func() {
		end, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetUp(end)
		}
		if err != nil {
			l.Fatal(err)
		}
	})
	return netns
}

// quiet keeps the kernel from sending IPv6 packets on a link.
func (l *lab) quiet(link string) {
	l.Helper()
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/disable_ipv6", []byte("1"), 0); err != nil {
		l.Fatal(err)
	}
}

// onLink returns the request for an interface on a link, with small rings.
func onLink(link string) *af_packet.AfPacketCreateV3 {
	return &af_packet.AfPacketCreateV3{
		Mode:             af_packet.AF_PACKET_API_MODE_ETHERNET,
		HostIfName:       link,
		HwAddr:           mac("02:00:00:00:03:01"),
		NumRxQueues:      1,
		NumTxQueues:      1,
		RxFramesPerBlock: 32,
		TxFramesPerBlock: 32,
		RxFrameSize:      2048,
		TxFrameSize:      2048,
		Flags:            af_packet.AF_PACKET_API_FLAG_QDISC_BYPASS,
	}
}

var afPacketDump = &af_packet.AfPacketDump{}

func deleteLink(link string) *af_packet.AfPacketDelete {
	return &af_packet.AfPacketDelete{HostIfName: link}
}

func tap(id uint32, name string) *tapv2.TapCreateV3 {
	return &tapv2.TapCreateV3{
		ID:             id,
		MacAddress:     mac("02:00:00:00:04:01"),
		HostIfNameSet:  true,
		HostIfName:     name,
		Tag:            "weft:tap",
		HostMacAddrSet: true, HostMacAddr: mac("02:00:00:00:04:02"),
	}
}

var tapDump = &tapv2.SwInterfaceTapV2Dump{SwIfIndex: none}

func tunnel(src, dst string, vni uint32) *vxlan.VxlanAddDelTunnelV3 {
	return &vxlan.VxlanAddDelTunnelV3{
		IsAdd:          true,
		Instance:       anyID,
		SrcAddress:     addr(src),
		DstAddress:     addr(dst),
		McastSwIfIndex: none,
		DecapNextIndex: anyID, Vni: vni,
	}
}

func without(m *vxlan.VxlanAddDelTunnelV3) *vxlan.VxlanAddDelTunnelV3 {
	gone := *m
	gone.IsAdd = false
	return &gone
}

var tunnelDump = &vxlan.VxlanTunnelV2Dump{SwIfIndex: none}

// adminState records whether the kernel's link is up.
func (l *lab) adminState(link string) {
	l.Helper()
	found, err := netlink.LinkByName(link)
	if err != nil {
		l.note("link %s: %v", link, err)
		return
	}
	l.note("link %s is up: %t", link, found.Attrs().RawFlags&1 != 0)
}

// tunnelTableKills: a tunnel does not lock the table of its outer packets.
var tunnelTableKills = map[string]string{"25.10": "SIGSEGV in fib_entry_cover_track under ip4_fib_table_destroy"}

var linkCases = []testCase{
	{name: "af_packet: an interface is created, dumped and deleted", run: func(l *lab) {
		l.veth("weft1")
		a := l.make("a", onLink("weft1"))
		l.each(afPacketDump, dumpOf(a), setUp(a, true), dumpOf(a), mtu(a, 1400), dumpOf(a),
			setMAC(a, "02:00:00:00:00:55"), dumpOf(a), onLink("weft1"),
			setUp(a, false), dumpOf(a))
		l.adminState("weft1")
		l.each(deleteLink("weft1"), deleteLink("weft1"), afPacketDump, dumpOf(none))
		l.adminState("weft1")
	}},
	{name: "af_packet: a random MAC", run: func(l *lab) {
		l.veth("weft1")
		m := onLink("weft1")
		m.UseRandomHwAddr = true
		a := l.make("a", m)
		l.ask(dumpOf(a))
	}},
	{name: "af_packet: a link that is down", run: func(l *lab) {
		l.veth("weft1")
		link, err := netlink.LinkByName("weft1")
		if err == nil {
			err = netlink.LinkSetDown(link)
		}
		if err != nil {
			l.Fatal(err)
		}
		a := l.make("a", onLink("weft1"))
		l.ask(dumpOf(a))
		l.adminState("weft1")
		l.each(setUp(a, true), dumpOf(a))
		l.adminState("weft1")
	}},
	{name: "af_packet: refusals", run: func(l *lab) {
		l.veth("weft1")
		mode := onLink("weft1")
		many := onLink("weft1")
		long := onLink("sixteen-bytes-xx")
		mode.Mode = 0
		many.NumTxQueues = 17
		l.each(onLink("nolink"), onLink(""), long, mode, deleteLink("weft1"), deleteLink(""), deleteLink("nolink"),
			afPacketDump, dumpOf(none))
		many.NumRxQueues = 17
		l.make("many", many)
		l.ask(afPacketDump)
	}},
	{name: "af_packet: a link is deleted", run: func(l *lab) {
		l.veth("weft1")
		a := l.make("a", onLink("weft1"))
		l.must(setUp(a, true))
		link, err := netlink.LinkByName("weft1")
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			l.Fatal(err)
		}
		l.each(afPacketDump, deleteLink("weft1"), afPacketDump)
	}},
	{name: tapCase, needs: vhostNet, run: func(l *lab) {
		m := tap(5, "pod0")
		m.HostMtuSet = true
		m.HostMtuSize = 1400
		m.RxRingSz = 512
		m.TapFlags = tapv2.TAP_API_FLAG_GSO
		m.HostNamespaceSet = true
		m.HostNamespace = netnstest.New(l.T)
		a := l.make("a", m)
		b := l.make("b", &tapv2.TapCreateV3{ID: anyID, UseRandomMac: true})
		l.each(tapDump, dumpOf(a), dumpOf(b), setUp(a, true), dumpOf(a), &tapv2.SwInterfaceTapV2Dump{SwIfIndex: a},
			&tapv2.TapDeleteV2{SwIfIndex: a}, &tapv2.TapDeleteV2{SwIfIndex: a},
			&tapv2.TapDeleteV2{SwIfIndex: 0}, &tapv2.TapDeleteV2{SwIfIndex: unknown}, tapDump, dumpOf(none))
		l.adminState("tap0")
	}},
	{name: "tap: refusals", needs: vhostNet, run: func(l *lab) {
		l.make("a", tap(5, "pod0"))
		ring := tap(6, "pod1")
		queues := tap(6, "pod1")
		far := tap(6, "pod1")
		long := tap(6, "sixteen-letters-")
		id := tap(8193, "pod1")
		ring.RxRingSz = 300
		queues.NumRxQueues = 17
		far.HostNamespaceSet = true
		far.HostNamespace = "/no/such/netns"
		for _, m := range []api.Message{tap(5, "pod1"), ring, queues, far, long, id} {
			l.make("odd", m)
		}
		l.ask(tapDump)
	}},
	{name: "tap: a host name that exists", needs: vhostNet, run: func(l *lab) {
		l.make("a", tap(5, "pod0"))
		l.make("b", tap(6, "pod0"))
		l.each(tapDump, dumpOf(none))
	}},
	{name: "tap: without vhost-net", needs: noVhostNet, run: func(l *lab) { l.ask(tap(5, "pod0")) }},
	{name: "vxlan: tunnels are created, dumped and deleted", run: func(l *lab) {
		four := tunnel("192.0.2.1", "192.0.2.2", 77)
		six := tunnel("2001:db8::1", "2001:db8::2", 77)
		six.Instance = 9000
		six.SrcPort = 8472
		six.DstPort = 8473
		a := l.make("a", four)
		b := l.make("b", six)
		l.each(tunnelDump, dumpOf(a), dumpOf(b), &vxlan.VxlanTunnelV2Dump{SwIfIndex: b},
			&vxlan.VxlanTunnelV2Dump{SwIfIndex: unknown}, &vxlan.VxlanTunnelV2Dump{SwIfIndex: 0},
			setUp(a, true), dumpOf(a), setUp(a, false), dumpOf(a), mtu(a, 1450), dumpOf(a),
			setMAC(a, "02:00:00:00:00:55"), dumpOf(a),
			without(four), without(four), tunnelDump, dumpOf(none), allRoutes(0, false))
		again := tunnel("192.0.2.1", "192.0.2.2", 77)
		c := l.make("c", again)
		l.ask(dumpOf(c))
		l.note("index of the first tunnel is reused: %t", a == c)
	}},
	{name: "vxlan: refusals", run: func(l *lab) {
		l.make("a", tunnel("192.0.2.1", "192.0.2.2", 77))
		table := tunnel("192.0.2.1", "192.0.2.2", 77)
		mixed := tunnel("192.0.2.1", "192.0.2.2", 77)
		taken := tunnel("192.0.2.1", "192.0.2.2", 5)
		vni := tunnel("192.0.2.1", "192.0.2.2", 1<<24)
		high := tunnel("192.0.2.1", "192.0.2.2", 6)
		table.EncapVrfID = 5
		mixed.SrcAddress = addr("::1")
		taken.Instance = 0
		high.Instance = 1 << 20
		l.each(tunnel("192.0.2.1", "192.0.2.2", 77), without(tunnel("192.0.2.1", "192.0.2.2", 1)),
			tunnel("192.0.2.2", "192.0.2.2", 77), table, mixed, taken)
		for _, m := range []api.Message{
			vni, high, tunnel("192.0.2.1", "224.0.0.1", 8), tunnel("0.0.0.0", "192.0.2.2", 9),
			tunnel("192.0.2.1", "0.0.0.0", 10), tunnel("192.0.2.1", "192.0.2.2", 0),
		} {
			l.make("odd", m)
		}
		l.ask(tunnelDump)
	}},
	{name: "vxlan: a tunnel in a bridge domain", run: func(l *lab) {
		m := tunnel("192.0.2.1", "192.0.2.2", 77)
		a := l.make("a", m)
		l.must(setUp(a, true))
		l.each(joinAs(a, 1, 0, 1), bridges(1), l2Entry(1, "02:00:00:00:00:09", a, true), l2Entries(1), without(m),
			bridges(1), l2Entries(1))
	}},
	{name: "vxlan: a tunnel and the table of its outer packets", run: func(l *lab) {
		l.must(tableMessage(7, false, true))
		m := tunnel("192.0.2.1", "192.0.2.2", 77)
		m.EncapVrfID = 7
		l.make("a", m)
		l.make("b", tunnel("192.0.2.1", "192.0.2.2", 77))
		l.each(tunnelDump, allRoutes(7, false))
	}},
	{name: "vxlan: the table of the outer packets is deleted", kills: tunnelTableKills, run: func(l *lab) {
		l.must(tableMessage(7, false, true))
		m := tunnel("192.0.2.1", "192.0.2.2", 77)
		m.EncapVrfID = 7
		l.make("a", m)
		l.each(tableMessage(7, false, false), tunnelDump)
	}},
	{name: "vxlan: events", run: func(l *lab) {
		l.watch()
		m := tunnel("192.0.2.1", "192.0.2.2", 77)
		a := l.make("a", m)
		l.events(1)
		for _, change := range []api.Message{setUp(a, true), setUp(a, false), without(m)} {
			l.must(change)
			l.settle()
		}
	}},
	{name: "af_packet: events", run: func(l *lab) {
		l.veth("weft1")
		l.watch()
		a := l.make("a", onLink("weft1"))
		l.settle()
		for _, change := range []api.Message{setUp(a, true), setUp(a, false), deleteLink("weft1")} {
			l.must(change)
			l.settle()
		}
	}},
}

// noVhostNet returns the requirement of cases for machines without vhost-net if the machine has it.
func noVhostNet() string {
	if vhostNet() == "" {
		return "needs a machine without /dev/vhost-net"
	}
	return ""
}
