package linux

import (
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netns"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/wire"
)

// The links of the node: to the dataplane with the pods of this node, and to all other hosts.
const (
	nodeLink = "weft0"
	uplink   = "up0"
	port     = 8080
)

// ends are the hosts' addresses of one family.
type ends struct{ pod, otherPod, missing, node, nodeUplink, farPod, outside, excluded, service string }

var families = map[string]ends{
	"IPv4": {
		pod: "10.1.0.10", otherPod: "10.1.0.11", missing: "10.1.0.77", node: "10.1.0.1", nodeUplink: "192.0.2.1",
		farPod: "10.1.1.10", outside: "192.0.2.9", excluded: "198.51.100.7", service: "10.96.0.1",
	},
	"IPv6": {
		pod: "fd00:1::10", otherPod: "fd00:1::11", missing: "fd00:1::77", node: "fd00:1::1", nodeUplink: "fd00:2::1",
		farPod: "fd00:1:1::10", outside: "fd00:2::9", excluded: "fd00:3::7", service: "fd00:96::1",
	},
}

// scene is a lab with the process as a node between a namespace of pods and one of all other hosts.
type scene struct {
	*lab
	pods, world string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{newTableLab(t), netnstest.New(t), netnstest.New(t)}
	for _, setting := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		must(t, os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0))
	}
	s.connect(nodeLink, s.pods)
	s.connect(uplink, s.world)
	mine := ""
	theirs := s.world
	for _, e := range families {
		bits := 24
		if netip.MustParseAddr(e.pod).Is6() {
			bits = 64
		}
		s.give(mine, nodeLink, e.node, bits)
		s.give(mine, uplink, e.nodeUplink, bits)
		s.give(s.pods, "eth0", e.pod, bits)
		s.give(s.pods, "eth0", e.otherPod, bits)
		s.give(theirs, "eth0", e.outside, bits)
		s.give(theirs, "eth0", e.farPod, 8*len(netip.MustParseAddr(e.pod).AsSlice()))
		s.give(theirs, "eth0", e.excluded, 8*len(netip.MustParseAddr(e.pod).AsSlice()))
		s.lead(s.pods, "eth0", "", e.node)
		s.lead(theirs, "eth0", "", e.nodeUplink)
		s.lead(mine, uplink, "", e.outside)
		s.lead(mine, uplink, e.farPod, e.outside)
		s.lead(mine, uplink, e.excluded, e.outside)
	}
	return s
}

// within runs f in a namespace, in the node's for "".
func (s *scene) within(path string, f func()) {
	s.Helper()
	if path == "" {
		f()
		return
	}
	netnstest.Do(s, path, f)
}

func (s *scene) connect(name, to string) {
	s.Helper()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0"}
	var fd *os.File
	s.within(to, func() {
		own, err := os.Open(netns.Own)
		must(s.T, err)
		fd = own
	})
	defer fd.Close()
	pair.PeerNamespace = netlink.NsFd(int(fd.Fd()))
	must(s.T, netlink.LinkAdd(pair))
	s.Cleanup(func() { _ = netlink.LinkDel(pair) }) // may be deleted with the other namespace
	must(s.T, netlink.LinkSetUp(pair))
	s.within(to, func() { must(s.T, netlink.LinkSetUp(mustFind(s.T, "eth0"))) })
}

func (s *scene) give(path, name, address string, bits int) {
	s.Helper()
	s.within(path, func() {
		a := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(netip.MustParseAddr(address), bits)), Flags: unix.IFA_F_NODAD}
		must(s.T, netlink.AddrAdd(mustFind(s.T, name), a))
	})
}

// lead adds a route to one address, or a default route.
func (s *scene) lead(path, name, to, gateway string) {
	s.Helper()
	g := netip.MustParseAddr(gateway)
	destination := netip.PrefixFrom(g, 0).Masked()
	if to != "" {
		destination = netip.PrefixFrom(netip.MustParseAddr(to), g.BitLen())
	}
	s.within(path, func() {
		must(s.T,
			netlink.RouteAdd(&netlink.Route{
				LinkIndex: mustFind(s.T, name).Attrs().Index,
				Dst:       ipNet(destination),
				Gw:        g.AsSlice(),
			}))
	})
}

// serve runs a server in a namespace that replies with the client's address.
func (s *scene) serve(path string) {
	s.Helper()
	s.within(path, func() {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
		must(s.T, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := listener.AcceptTCP()
				if err != nil {
					return // closed
				}
				seen := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
				_, _ = io.WriteString(c, seen.String()) // the client may have closed the connection
				_ = c.Close()
			}
		}()
		s.Cleanup(func() { _ = listener.Close(); <-done })
	})
}

// seen connects from a namespace and returns the address that the server sees; "" without a connection.
func (s *scene) seen(path, from, to string) (as string) {
	s.Helper()
	s.within(path, func() {
		dialer := net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := dialer.DialContext(s.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(to), port).String())
		if err != nil {
			s.Errorf("from %s to %s: %v", from, to, err)
			return
		}
		defer c.Close()
		text, err := io.ReadAll(c)
		must(s.T, err)
		as = string(text)
	})
	return as
}

// redirect translates destinations like kube-proxy for a Service with one pod, in a separate table.
func (s *scene) redirect(service, pod string) {
	s.Helper()
	s.redirectTo(service, pod, port)
}

// redirectTo translates all ports of an address to one port of another.
func (s *scene) redirectTo(service, pod string, port uint16) {
	s.Helper()
	c := nft(s.T)
	table := c.AddTable(&nftables.Table{
		Family: nftables.TableFamilyINet,
		Name:   "proxy-of-" + strings.ReplaceAll(pod, ":", "-"),
	})
	from := netip.MustParseAddr(service)
	to := netip.MustParseAddr(pod)
	number := uint32(unix.NFPROTO_IPV4)
	at := uint32(destination4)
	if from.Is6() {
		number = unix.NFPROTO_IPV6
		at = destination6
	}
	for name, hook := range map[string]*nftables.ChainHook{
		"prerouting": nftables.ChainHookPrerouting,
		"output":     nftables.ChainHookOutput,
	} {
		chain := c.AddChain(&nftables.Chain{
			Name:     name,
			Table:    table,
			Type:     nftables.ChainTypeNAT,
			Hooknum:  hook,
			Priority: nftables.ChainPriorityNATDest,
		})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{byte(number)}},
			&expr.Payload{
				Base:         expr.PayloadBaseNetworkHeader,
				Offset:       at,
				Len:          uint32(len(from.AsSlice())),
				DestRegister: 1,
			},
			&expr.Cmp{Register: 1, Data: from.AsSlice()},
			&expr.Immediate{Register: 1, Data: to.AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(port)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: number, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
		}})
	}
	must(s.T, c.Flush())
	s.Cleanup(func() { c.DelTable(table); must(s.T, c.Flush()) })
}

func TestOnlyPacketsOutOfTheClusterAreMasqueraded(t *testing.T) {
	s := newScene(t)
	s.serve(s.world)
	s.serve(s.pods)
	off := cluster()
	nothing := cluster()
	off.Egress = false
	nothing.Exclude = nil
	for family, e := range families {
		for _, tt := range []struct {
			name     string
			setting  object
			to, seen string
		}{
			{"outside", masqueradeObject(cluster()), e.outside, e.nodeUplink},
			{"a pod of another node", masqueradeObject(cluster()), e.farPod, e.pod},
			{"excluded", masqueradeObject(cluster()), e.excluded, e.pod},
			{"no longer excluded", masqueradeObject(nothing), e.excluded, e.nodeUplink},
			{"outside, switched off", masqueradeObject(off), e.outside, e.pod},
		} {
			t.Run(family+" to "+tt.name, func(t *testing.T) {
				s.mustCommit(tt.setting)
				if seen := s.seen(s.pods, e.pod, tt.to); seen != tt.seen {
					t.Errorf("seen as %q, want %q", seen, tt.seen)
				}
			})
		}
		s.mustCommit(masqueradeObject(cluster()))
		if seen := s.seen(s.world, e.outside, e.pod); seen != e.outside {
			t.Errorf("%s: a pod sees a client outside the cluster as %q", family, seen)
		}
	}
}

// Replies to packets from the dataplane or the node into the dataplane pass the node, which has to revert the
// redirection: otherwise the pod would get replies from itself, or from a pod that it did not connect to.
func TestAServiceIsReachedByItsPodByOtherPodsAndByTheNode(t *testing.T) {
	s := newScene(t)
	s.serve(s.pods)
	s.mustCommit(masqueradeObject(cluster()))
	for family, e := range families {
		s.redirect(e.service, e.pod)
		for _, from := range []string{e.pod, e.otherPod} {
			if seen := s.seen(s.pods, from, e.service); seen != e.node {
				t.Errorf("%s from %s: seen as %q, want the node's %s", family, from, seen, e.node)
			}
		}
		if seen := s.seen("", e.nodeUplink, e.service); seen != e.node {
			t.Errorf("%s from the node's other address: seen as %q, want %s", family, seen, e.node)
		}
		s.lead(s.world, "eth0", e.service, e.nodeUplink)
		if seen := s.seen(s.world, e.outside, e.service); seen != e.outside {
			t.Errorf("%s from outside: seen as %q, want the client's address", family, seen)
		}
	}
}

// The endpoints of Services see the client addresses of this node's pods, if their replies return to this node.
func TestEndpointsSeeClientAddresses(t *testing.T) {
	s := newScene(t)
	s.serve(s.pods)
	clients := map[string]map[string]string{
		"IPv4": {"10.1.0.10": "100.65.0.10", "10.1.0.11": "100.65.0.11"}, "IPv6": {
			"fd00:1::10": "fc00:1::10",
			"fd00:1::11": "fc00:1::11",
		},
	}
	elsewhere := withClients(cluster())
	foreign := withClients(cluster())
	elsewhere.Clients.Endpoints = prefixes("10.1.1.0/24", "fd00:1:1::/64")
	foreign.Clients.Pods = elsewhere.Clients.Endpoints
	for family, e := range families {
		s.redirect(e.service, e.pod)
		s.mustCommit(masqueradeObject(withClients(cluster())))
		for from, client := range clients[family] {
			if seen := s.seen(s.pods, from, e.service); seen != client {
				t.Errorf("%s from %s: seen as %q, want %s", family, from, seen, client)
			}
		}
		if seen := s.seen("", e.nodeUplink, e.service); seen != e.node {
			t.Errorf("%s from the node: seen as %q, want %s", family, seen, e.node)
		}
		for what, v := range map[string]wire.Masquerade{
			"an endpoint without a way back": elsewhere,
			"a client of another node":       foreign,
		} {
			s.mustCommit(masqueradeObject(v))
			if seen := s.seen(s.pods, e.otherPod, e.service); seen != e.node {
				t.Errorf("%s, %s: seen as %q, want the node's %s", family, what, seen, e.node)
			}
		}
	}
}

// A Service proxy translates the connections of a pod to itself to the node's address, from which ingress policies
// permit them.
func TestTheTranslationOfAServiceProxyWins(t *testing.T) {
	s := newScene(t)
	s.serve(s.pods)
	e := families["IPv4"]
	s.redirect(e.service, e.pod)
	s.mustCommit(masqueradeObject(withClients(cluster())))
	c := nft(t)
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "proxy"})
	chain := c.AddChain(&nftables.Chain{
		Name:     "masquerade",
		Table:    table,
		Type:     nftables.ChainTypeNAT,
		Hooknum:  nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: slices.Concat(
		isAddress(source4, netip.MustParseAddr(e.pod)), isAddress(destination4, netip.MustParseAddr(e.pod)), []expr.Any{
			&expr.Masq{},
		},
	)})
	must(t, c.Flush())
	t.Cleanup(func() { c.DelTable(table); must(t, c.Flush()) })
	for from, want := range map[string]string{e.pod: e.node, e.otherPod: "100.65.0.11"} {
		if seen := s.seen(s.pods, from, e.service); seen != want {
			t.Errorf("from %s: seen as %q, want %s", from, seen, want)
		}
	}
}

// A late packet to a client address belongs to no connection, and leaves the node nowhere.
func TestPacketsToClientAddressesWithoutAConnectionAreDropped(t *testing.T) {
	s := newScene(t)
	s.mustCommit(masqueradeObject(withClients(cluster())))
	send := func(client string) {
		s.within(s.pods, func() {
			c, err := net.Dial("udp", net.JoinHostPort(client, "9"))
			must(t, err)
			defer c.Close()
			_, err = c.Write([]byte("late"))
			must(t, err)
		})
	}
	send("100.66.0.11") // of no pod of this node
	send("100.65.0.11")
	s.await("a packet is dropped", func() bool { return s.dropped() > 0 })
	if got := s.dropped(); got != 1 {
		t.Errorf("%d packets are dropped, want that to the pod of this node", got)
	}
}

// await waits until something happened.
func (s *scene) await(what string, happened func() bool) {
	s.Helper()
	limit := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-limit:
			s.Fatalf("not after 10 s: %s", what)
		case <-tick.C:
		}
	}
}

// dropped returns the number of packets to client addresses that were dropped.
func (s *scene) dropped() uint64 { return s.counted("clients-forward") }

// counted returns the number of packets that matched the rules of a chain.
func (s *scene) counted(chain string) (sum uint64) {
	s.Helper()
	rules, err := nft(s.T).GetRules(inetTable(tableName), &nftables.Chain{Name: chain})
	must(s.T, err)
	for _, rule := range rules {
		for _, e := range rule.Exprs {
			if counter, is := e.(*expr.Counter); is {
				sum += counter.Packets
			}
		}
	}
	return sum
}

// While the dataplane has no route to a pod, it sends packets of its connections to the node. The node must not send
// them on from its own address: the pod would reset the connection. A new connection to a pod is the node's business.
func TestConnectionsOfPodsOutliveAMissingRoute(t *testing.T) {
	s := newScene(t)
	s.mustCommit(masqueradeObject(cluster()))
	var mac net.HardwareAddr
	s.within("", func() { mac = mustFind(t, nodeLink).Attrs().HardwareAddr })
	for family, e := range families {
		dropped := s.counted("connections-forward")
		translated := s.counted(chainName)
		s.inject(mac, e.pod, e.missing, func(tcp *layers.TCP) { tcp.ACK = true })
		s.inject(mac, e.pod, e.missing, func(tcp *layers.TCP) { tcp.RST = true })
		s.inject(mac, e.pod, e.missing, func(tcp *layers.TCP) { tcp.SYN = true })
		s.await("a packet is translated", func() bool { return s.counted(chainName) > translated })
		if got := s.counted("connections-forward") - dropped; got != 2 {
			t.Errorf("%s: %d packets dropped, want both of no connection", family, got)
		}
		if got := s.counted(chainName) - translated; got != 1 {
			t.Errorf("%s: %d packets translated, want that which begins a connection", family, got)
		}
	}
}

// A rule of another program may exempt packets from connection tracking: whether they belong to a connection is not
// known then, so they pass.
func TestPacketsWithoutConnectionTrackingPassTheNode(t *testing.T) {
	s := newScene(t)
	s.mustCommit(masqueradeObject(cluster()))
	e := families["IPv4"]
	mac := mustFind(t, nodeLink).Attrs().HardwareAddr
	c := nft(t)
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "untracked"})
	chain := c.AddChain(&nftables.Chain{
		Name:     "raw",
		Table:    table,
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityRaw,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Notrack{}}})
	must(t, c.Flush())
	s.inject(mac, e.pod, e.missing, func(tcp *layers.TCP) { tcp.ACK = true })
	c.DelTable(table)
	must(t, c.Flush())
	s.inject(mac, e.pod, e.missing, func(tcp *layers.TCP) { tcp.ACK = true })
	s.await("a packet is dropped", func() bool { return s.counted("connections-forward") > 0 })
	if got := s.counted("connections-forward"); got != 1 {
		t.Errorf("%d packets are dropped, want the one that is tracked", got)
	}
}

// inject sends a TCP segment from the link of the pods.
func (s *scene) inject(to net.HardwareAddr, from, destination string, flags func(*layers.TCP)) {
	s.Helper()
	s.within(s.pods, func() {
		eth0 := mustFind(s.T, "eth0")
		segment := &layers.TCP{SrcPort: 4000, DstPort: port, Window: 1000}
		flags(segment)
		ethernet := &layers.Ethernet{
			SrcMAC:       eth0.Attrs().HardwareAddr,
			DstMAC:       to,
			EthernetType: layers.EthernetTypeIPv4,
		}
		ip4 := &layers.IPv4{
			Version:  4,
			TTL:      64,
			Protocol: layers.IPProtocolTCP,
			SrcIP:    net.ParseIP(from),
			DstIP:    net.ParseIP(destination),
		}
		var ip gopacket.SerializableLayer = ip4
		var network gopacket.NetworkLayer = ip4
		if netip.MustParseAddr(from).Is6() {
			ethernet.EthernetType = layers.EthernetTypeIPv6
			ip6 := &layers.IPv6{
				Version:    6,
				HopLimit:   64,
				NextHeader: layers.IPProtocolTCP,
				SrcIP:      net.ParseIP(from),
				DstIP:      net.ParseIP(destination),
			}
			ip = ip6
			network = ip6
		}
		must(s.T, segment.SetNetworkLayerForChecksum(network))
		frame := gopacket.NewSerializeBuffer()
		must(s.T, gopacket.SerializeLayers(frame, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			ethernet, ip, segment))
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		must(s.T, err)
		defer unix.Close(socket)
		must(s.T, unix.Sendto(socket, frame.Bytes(), 0, &unix.SockaddrLinklayer{Ifindex: eth0.Attrs().Index}))
	})
}

// A proxy may redirect without connection tracking. The node translates replies, too.
func TestAServiceWithoutConnectionTrackingIsReached(t *testing.T) {
	s := newScene(t)
	s.serve(s.pods)
	s.mustCommit(masqueradeObject(cluster()))
	e := families["IPv4"]
	s.rewrite(nftables.ChainHookPrerouting, destination4, e.service, e.pod)
	s.rewrite(nftables.ChainHookForward, source4, e.pod, e.service)
	if seen := s.seen(s.pods, e.otherPod, e.service); seen != e.node {
		t.Errorf("seen as %q, want the node's %s", seen, e.node)
	}
}

// rewrite replaces an address in each packet before connection tracking.
func (s *scene) rewrite(hook *nftables.ChainHook, at uint32, from, to string) {
	s.Helper()
	c := nft(s.T)
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "rewrite-" + to})
	chain := c.AddChain(&nftables.Chain{
		Name:     "rewrite",
		Table:    table,
		Type:     nftables.ChainTypeFilter,
		Hooknum:  hook,
		Priority: nftables.ChainPriorityRaw,
	})
	const (
		checksum     = 10
		pseudoHeader = 1
	) // offset in the IPv4 header; update the checksum of the transport, too
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		address(at, 4), &expr.Cmp{Register: 1, Data: netip.MustParseAddr(from).AsSlice()},
		&expr.Immediate{Register: 1, Data: netip.MustParseAddr(to).AsSlice()},
		&expr.Payload{
			OperationType:  expr.PayloadWrite,
			SourceRegister: 1,
			Base:           expr.PayloadBaseNetworkHeader,
			Offset:         at,
			Len:            4,
			CsumType:       expr.CsumTypeInet, CsumOffset: checksum, CsumFlags: pseudoHeader,
		},
	}})
	must(s.T, c.Flush())
	s.Cleanup(func() { c.DelTable(table); must(s.T, c.Flush()) })
}

func TestUpdateKeepsCountersAndConnections(t *testing.T) {
	s := newScene(t)
	s.serve(s.world)
	s.mustCommit(masqueradeObject(cluster()))
	e := families["IPv4"]
	if seen := s.seen(s.pods, e.pod, e.outside); seen != e.nodeUplink {
		t.Fatalf("seen as %q", seen)
	}
	c := s.open(s.pods, e)
	defer c.Close()
	counted := s.packets()
	if counted == 0 {
		t.Fatal("nothing was counted")
	}
	s.resync()
	more := cluster()
	more.Exclude = append(more.Exclude, prefixes("203.0.113.0/24")...)
	s.mustCommit(masqueradeObject(more))
	if after := s.packets(); after < counted {
		t.Errorf("%d packets were counted before the update, %d after", counted, after)
	}
	must(t, RemoveMasquerade())
	s.resync()
	text, err := io.ReadAll(c) // the server replies at the end of the request
	if err != nil || string(text) != e.nodeUplink {
		t.Errorf("an earlier connection: %q, %v", text, err)
	}
}

// open opens a connection.
func (s *scene) open(path string, e ends) (c net.Conn) {
	s.Helper()
	s.within(path, func() {
		dialer := net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(e.pod)}}
		opened, err := dialer.DialContext(s.Context(), "tcp",
			netip.AddrPortFrom(netip.MustParseAddr(e.outside), port).String())
		must(s.T, err)
		c = opened
	})
	return c
}

// packets returns the number of packets that the rules have translated.
func (s *scene) packets() (sum uint64) {
	s.Helper()
	for _, rule := range rulesThere(s.T) {
		for _, e := range rule.Exprs {
			if counter, is := e.(*expr.Counter); is {
				sum += counter.Packets
			}
		}
	}
	return sum
}
