package linux

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/wire"
)

// chainLink is the link to pods of another CNI plugin, which the node's kernel routes.
const chainLink = "chain0"

// guardAddresses are, per family, a pod of another plugin and the node's end of its link.
var guardAddresses = map[string]struct{ chained, chainedNode string }{
	"IPv4": {"10.99.0.10", "10.99.0.1"},
	"IPv6": {"fd00:99::10", "fd00:99::1"},
}

// newGuardScene makes a scene with pods of another plugin. A foreign table masquerades their addresses.
func newGuardScene(t *testing.T) (s *scene, chained string) {
	t.Helper()
	s = newScene(t)
	chained = netnstest.New(t)
	s.connect(chainLink, chained)
	for _, a := range guardAddresses {
		bits := 24
		if netip.MustParseAddr(a.chained).Is6() {
			bits = 64
		}
		s.give("", chainLink, a.chainedNode, bits)
		s.give(chained, "eth0", a.chained, bits)
		s.lead(chained, "eth0", "", a.chainedNode)
	}
	s.masqueradeAll()
	// other tests list all connections
	t.Cleanup(func() { must(t, netlink.ConntrackTableFlush(netlink.ConntrackTable)) })
	return s, chained
}

// masqueradeAll masquerades all packets that leave through the uplink, like other plugins and kube-proxy.
func (s *scene) masqueradeAll() {
	s.Helper()
	c := nft(s.T)
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "of-another-plugin"})
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	})
	c.AddRule(&nftables.Rule{
		Table: table,
		Chain: chain,
		Exprs: append(link(expr.MetaKeyOIFNAME, expr.CmpOpEq, uplink), &expr.Masq{}),
	})
	must(s.T, c.Flush())
	s.Cleanup(func() { c.DelTable(table); must(s.T, c.Flush()) })
}

// guarded returns the number of packets that the guard has dropped.
func (s *scene) guarded() (sum uint64) {
	s.Helper()
	for _, chain := range []string{"guard-prerouting", "guard-forward"} {
		rules, err := nft(s.T).GetRules(inetTable(tableName), &nftables.Chain{Name: chain})
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		must(s.T, err)
		for _, rule := range rules {
			for _, e := range rule.Exprs {
				if counter, is := e.(*expr.Counter); is {
					sum += counter.Packets
				}
			}
		}
	}
	return sum
}

// mustDrop sends a packet and fails unless the guard drops it.
func (s *scene) mustDrop(from *net.UDPConn, to netip.AddrPort, size int, at *net.UDPConn) {
	s.Helper()
	before := s.guarded()
	send(s.T, from, to, strings.Repeat(dropped, size))
	for range 10_000 {
		source, got, err := receivedWithin(at, time.Millisecond)
		switch {
		case err == nil && strings.HasPrefix(got, dropped):
			s.Fatalf("%s received %d bytes from %s", at.LocalAddr(), len(got), source)
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			s.Fatal(err)
		}
		if s.guarded() > before {
			return
		}
	}
	s.Fatalf("the packet to %s was neither dropped by the guard nor received", to)
}

// mustPass sends a packet until one arrives: on a busy machine the kernel may give up the first one while it asks for
// the neighbour's MAC.
func (s *scene) mustPass(from *net.UDPConn, to netip.AddrPort, size int, at *net.UDPConn) (source string) {
	s.Helper()
	text := strings.Repeat(passing, size)
	for range 10 {
		send(s.T, from, to, text)
		source, got, err := receivedWithin(at, 4*time.Second)
		switch {
		case err == nil && got == text:
			return source
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			s.Fatal(err)
		}
	}
	s.Fatalf("%s received none of 10 packets of %d bytes", at.LocalAddr(), size)
	return ""
}

// The texts of packets that must pass and of those that must not. One of the former may arrive twice and late.
const (
	passing = "y"
	dropped = "x"
)

const inFragments = 4000 // bytes; the links have an MTU of 1500

// Finding 2 of issue 12: a masqueraded packet of a pod has the source address of a valid tunnel end.
func TestPodsReachNoTunnelOfAnyNode(t *testing.T) {
	s, chained := newGuardScene(t)
	s.mustCommit(masqueradeObject(cluster()))
	for family, e := range families {
		own := guardAddresses[family]
		peer := s.socket(s.world, e.outside, tunnelPort, true)
		other := s.socket(s.world, e.outside, port, true)
		node := s.socket("", e.nodeUplink, tunnelPort, true)
		nodeOther := s.socket("", e.nodeUplink, port, true)
		pod := s.socket(s.pods, e.pod, 0, true)
		otherPod := s.socket(s.pods, e.otherPod, tunnelPort, true)
		chainedPod := s.socket(chained, own.chained, 0, true)
		s.redirectTo(e.service, e.outside, tunnelPort)
		for _, size := range []int{10, inFragments} {
			s.mustDrop(pod, udpAt(e.outside, tunnelPort), size, peer)
			s.mustDrop(pod, udpAt(e.service, 53), size, peer)
			s.mustDrop(pod, udpAt(e.nodeUplink, tunnelPort), size, node)
			s.mustDrop(pod, udpAt(e.node, tunnelPort), size, node)
			s.mustDrop(chainedPod, udpAt(e.outside, tunnelPort), size, peer)
			s.mustDrop(chainedPod, udpAt(e.service, 53), size, peer)

			if source := s.mustPass(pod, udpAt(e.outside, port), size, other); source != e.nodeUplink {
				t.Errorf("%s: another port sees %s, want the node's address", family, source)
			}
			s.mustPass(chainedPod, udpAt(e.outside, port), size, other)
			s.mustPass(pod, udpAt(e.nodeUplink, port), size, nodeOther)
			s.mustPass(node, udpAt(e.outside, tunnelPort), size, peer)
			s.mustPass(peer, udpAt(e.nodeUplink, tunnelPort), size, node)
		}
		s.redirectTo(e.excluded, e.otherPod, tunnelPort)
		s.mustPass(pod, udpAt(e.excluded, 53), 10, otherPod) // a Service on the tunnels' port with a pod of this node
	}
}

// A node may route tunnel packets of other nodes. It drops packets of pods that a Service redirects into a tunnel:
// their source is the address of the pod's node already.
func TestNodeForwardsForeignTunnelsButRedirectsNothingIntoThem(t *testing.T) {
	s, chained := newGuardScene(t)
	for family, e := range families {
		far := guardAddresses[family].chained
		v := cluster()
		v.Guard.Nodes = append(v.Guard.Nodes, netaddr.Single(netip.MustParseAddr(far)))
		s.mustCommit(masqueradeObject(v))
		near := s.socket(s.world, e.outside, tunnelPort, true)
		end := s.socket(chained, far, tunnelPort, true)
		s.mustPass(near, udpAt(far, tunnelPort), 10, end)
		s.redirectTo(e.nodeUplink, far, tunnelPort)
		s.mustDrop(s.socket(s.world, e.outside, port, true), udpAt(e.nodeUplink, 30_000), 10, end)
	}
}

func TestGuardAllowsThePortWithoutTunnelsAndToOtherHosts(t *testing.T) {
	s, chained := newGuardScene(t)
	e := families["IPv4"]
	own := guardAddresses["IPv4"]
	peer := s.socket(s.world, e.outside, tunnelPort, true)
	v := cluster()
	v.Guard.Nodes = nil
	s.mustCommit(masqueradeObject(v)) // the plugin's pods may reach hosts that are not nodes
	s.mustPass(s.socket(chained, own.chained, 0, true), udpAt(e.outside, tunnelPort), 10, peer)
	pod := s.socket(s.pods, e.pod, 0, true)
	s.mustDrop(pod, udpAt(e.outside, tunnelPort), 10, peer) // it may be a node that this one does not know yet
	v.Guard = wire.TunnelGuard{}
	s.mustCommit(masqueradeObject(v))
	s.mustPass(pod, udpAt(e.outside, tunnelPort), 10, peer)
}
