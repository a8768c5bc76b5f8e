package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/wire"
)

const (
	tunnelLink = "weft-vtep0"
	tunnelPort = 4789
	tunnelVNI  = 10
)

// tunnelFamily has the addresses of one family: of the dataplane's end, the node, and hosts behind its uplink.
type tunnelFamily struct{ inner, node, peer, stranger string }

// The inner IPv6 address depends on the node's, see neutral.
var tunnelFamilies = map[string]tunnelFamily{
	"IPv4": {"169.254.43.2", "192.0.2.1", "192.0.2.2", "192.0.2.3"},
	"IPv6": {"", "2001:db8:ff::1", "2001:db8:ff::2", "2001:db8:ff::3"},
}

// neutral returns an address with the checksum of another.
func neutral(t *testing.T, node string) string {
	t.Helper()
	inner := netip.MustParseAddr("fd77:6566:7400::2").As16()
	for word := range 1 << 16 {
		inner[12] = byte(word >> 8)
		inner[13] = byte(word)
		if a := netip.AddrFrom16(inner); wire.AddressSum(a) == wire.AddressSum(netip.MustParseAddr(node)) {
			return a.String()
		}
	}
	t.Fatal("no address has the checksum of", node)
	return ""
}

func (f tunnelFamily) value() wire.TunnelNAT {
	return wire.TunnelNAT{
		Link: tunnelLink, Port: tunnelPort, Inner: netip.MustParseAddr(f.inner), Node: netip.MustParseAddr(f.node),
		Peers: []netip.Addr{netip.MustParseAddr(f.peer)}, VNIs: []uint32{tunnelVNI},
	}
}

func tunnelObject(v wire.TunnelNAT) object { return object{wire.TunnelNATKey(), v} }

// newTunnelScene makes a node between a dataplane, which has only its tunnel end, and other hosts. The kernel uses
// strict reverse path filtering and tracks connections, as with kube-proxy.
func newTunnelScene(t *testing.T, f tunnelFamily) *scene {
	t.Helper()
	s := &scene{newTableLab(t), netnstest.New(t), netnstest.New(t)}
	t.Cleanup(func() { must(t, RemoveTunnelNAT()) })
	for setting, value := range map[string]string{
		"ipv4/ip_forward":          "1",
		"ipv6/conf/all/forwarding": "1",
		"ipv4/conf/all/rp_filter":  "1",
	} {
		must(t, os.WriteFile("/proc/sys/net/"+setting, []byte(value), 0))
	}
	s.connect(tunnelLink, s.pods)
	s.connect(uplink, s.world)
	bits := netip.MustParseAddr(f.inner).BitLen()
	s.give("", uplink, f.node, bits-8)
	s.give(s.world, "eth0", f.peer, bits-8)
	s.give(s.world, "eth0", f.stranger, bits-8)
	s.give(s.pods, "eth0", f.inner, bits)
	inner := netip.PrefixFrom(netip.MustParseAddr(f.inner), bits)
	must(t,
		netlink.RouteAdd(&netlink.Route{
			LinkIndex: mustFind(t, tunnelLink).Attrs().Index,
			Dst:       ipNet(inner),
			Scope:     netlink.SCOPE_LINK,
		}))
	s.neighbour("", tunnelLink, f.inner, s.macOf(s.pods, "eth0"))
	for _, a := range []string{f.peer, f.stranger} {
		s.within(s.pods, func() {
			to := netip.PrefixFrom(netip.MustParseAddr(a), bits)
			must(t,
				netlink.RouteAdd(&netlink.Route{
					LinkIndex: mustFind(t, "eth0").Attrs().Index,
					Dst:       ipNet(to),
					Scope:     netlink.SCOPE_LINK,
				}))
		})
		s.neighbour(s.pods, "eth0", a, s.macOf("", tunnelLink))
	}
	s.lead(s.world, "eth0", f.inner, f.node)
	return s
}

func (s *scene) macOf(path, name string) (mac net.HardwareAddr) {
	s.Helper()
	s.within(path, func() { mac = mustFind(s.T, name).Attrs().HardwareAddr })
	return mac
}

func (s *scene) neighbour(path, name, a string, mac net.HardwareAddr) {
	s.Helper()
	s.within(path, func() {
		must(s.T, netlink.NeighSet(&netlink.Neigh{
			LinkIndex:    mustFind(s.T, name).Attrs().Index,
			State:        netlink.NUD_PERMANENT,
			IP:           net.ParseIP(a),
			HardwareAddr: mac,
		}))
	})
}

// socket opens a UDP socket on an address in a namespace. Without checksums, its packets have none.
func (s *scene) socket(path, a string, port int, checksums bool) (c *net.UDPConn) {
	s.Helper()
	s.within(path, func() {
		config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			return errors.Join(raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_NO_CHECK6_RX, 1)
				if !checksums {
					err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_NO_CHECK6_TX, 1),
						unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1))
				}
			}), err)
		}}
		opened, err := config.ListenPacket(s.Context(), "udp",
			netip.AddrPortFrom(netip.MustParseAddr(a), uint16(port)).String())
		must(s.T, err)
		c = opened.(*net.UDPConn)
	})
	s.Cleanup(func() { _ = c.Close() })
	return c
}

func udpAt(a string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(a), port)
}

// inVXLAN returns the payload of a tunnel packet.
func inVXLAN(vni uint32, frame string) string {
	return string(binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vni<<8)) + frame
}

func send(t *testing.T, from *net.UDPConn, to netip.AddrPort, text string) {
	t.Helper()
	_, err := from.WriteToUDPAddrPort([]byte(text), to)
	must(t, err)
}

// received returns the next datagram of a socket and its source address.
func received(t *testing.T, at *net.UDPConn) (from, text string) {
	t.Helper()
	from, text, err := receivedWithin(at, 20*time.Second)
	if err != nil {
		t.Errorf("at %s: %v", at.LocalAddr(), err)
	}
	return from, text
}

func receivedWithin(at *net.UDPConn, patience time.Duration) (from, text string, err error) {
	if err := at.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", "", err
	}
	raw := make([]byte, 1<<16)
	n, a, err := at.ReadFromUDPAddrPort(raw)
	return a.Addr().Unmap().String(), string(raw[:n]), err
}

// TestPeersSeeTunnelPacketsFromTheNodesAddress uses sockets of the kernel, which drops packets with a wrong checksum.
func TestPeersSeeTunnelPacketsFromTheNodesAddress(t *testing.T) {
	for name, f := range tunnelFamilies {
		if f.inner == "" {
			f.inner = neutral(t, f.node)
		}
		for _, checksums := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, checksums %t", name, checksums), func(t *testing.T) {
				s := newTunnelScene(t, f)
				s.mustCommit(masqueradeObject(cluster()), tunnelObject(f.value()))
				s.quiet()
				dataplane := s.socket(s.pods, f.inner, tunnelPort, checksums)
				peer := s.socket(s.world, f.peer, tunnelPort, checksums)
				longest := make([]byte, 1500-40-8-8) // the largest frame in one IPv6 packet
				for _, text := range []string{"even", "odd", string(longest)} {
					text = inVXLAN(tunnelVNI, text)
					send(t, dataplane, udpAt(f.peer, tunnelPort), text)
					if from, got := received(t, peer); from != f.node || got != text {
						t.Errorf("the peer received %d bytes from %s, want %d from %s", len(got), from, len(text),
							f.node)
					}
					send(t, peer, udpAt(f.node, tunnelPort), text)
					if from, got := received(t, dataplane); from != f.peer || got != text {
						t.Errorf("the dataplane received %d bytes from %s, want %d from %s", len(got), from, len(text),
							f.peer)
					}
				}
				flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_ALL)
				must(t, err)
				for _, flow := range flows {
					if flow.Forward.DstPort == tunnelPort || flow.Forward.SrcPort == tunnelPort {
						t.Errorf("a tunnel has a tracked connection: %s", flow)
					}
				}
			})
		}
	}
}

// After each packet that must not arrive, the test sends one that must, so that it needs no timeout.
func TestOnlyTunnelPacketsOfPeersAreTranslated(t *testing.T) {
	for name, f := range tunnelFamilies {
		if f.inner == "" {
			f.inner = neutral(t, f.node)
		}
		t.Run(name, func(t *testing.T) {
			s := newTunnelScene(t, f)
			s.mustCommit(tunnelObject(f.value()))
			dataplane := s.socket(s.pods, f.inner, tunnelPort, true)
			peer := s.socket(s.world, f.peer, tunnelPort, true)
			stranger := s.socket(s.world, f.stranger, tunnelPort, true)
			kernels := s.socket("", f.node, tunnelPort, true)
			other := s.socket("", f.node, tunnelPort+1, true)

			to := func(what string) string { return inVXLAN(tunnelVNI, what) }
			send(t, stranger, udpAt(f.node, tunnelPort), to("of a stranger"))
			if from, got := received(t, kernels); from != f.stranger || got != to("of a stranger") {
				t.Errorf("the node received %q from %s", got, from)
			}
			send(t, peer, udpAt(f.node, tunnelPort+1), to("to another port"))
			if from, got := received(t, other); from != f.peer || got != to("to another port") {
				t.Errorf("the node received %q from %s", got, from)
			}
			send(t, peer, udpAt(f.inner, tunnelPort), to("to the inner address"))
			send(t, peer, udpAt(f.node, tunnelPort), to("to the node"))
			if _, got := received(t, dataplane); got != to("to the node") {
				t.Errorf("the dataplane received %q", got)
			}
			send(t, dataplane, udpAt(f.stranger, tunnelPort), to("to a stranger"))
			send(t, dataplane, udpAt(f.peer, tunnelPort+1), to("to another port"))
			more := f.value()
			more.Peers = append(more.Peers, netip.MustParseAddr(f.stranger))
			s.mustCommit(tunnelObject(more))
			s.quiet()
			send(t, dataplane, udpAt(f.stranger, tunnelPort), to("to a new peer"))
			if from, got := received(t, stranger); from != f.node || got != to("to a new peer") {
				t.Errorf("the new peer received %q from %s", got, from)
			}
		})
	}
}

// VXLAN devices of other programs, such as Calico's, use the same port between the same addresses.
func TestPacketsWithOtherVNIsStayWithTheKernel(t *testing.T) {
	const added = 0x123456
	for name, f := range tunnelFamilies {
		if f.inner == "" {
			f.inner = neutral(t, f.node)
		}
		t.Run(name, func(t *testing.T) {
			s := newTunnelScene(t, f)
			s.mustCommit(masqueradeObject(cluster()), tunnelObject(f.value()))
			dataplane := s.socket(s.pods, f.inner, tunnelPort, true)
			peer := s.socket(s.world, f.peer, tunnelPort, true)
			kernels := s.socket("", f.node, tunnelPort, true)
			expect := func(at *net.UDPConn, sent string) {
				t.Helper()
				send(t, peer, udpAt(f.node, tunnelPort), sent)
				if from, got := received(t, at); from != f.peer || got != sent {
					t.Errorf("received %q from %s, want %q", got, from, sent)
				}
			}
			for _, vni := range []uint32{4096, 1, tunnelVNI + 1, tunnelVNI << 8, tunnelVNI | 1<<23, added} {
				expect(kernels, inVXLAN(vni, "of another program"))
			}
			extended := "\x88" + inVXLAN(tunnelVNI, "with a group policy")[1:]
			for _, payload := range []string{extended, "", "short", inVXLAN(tunnelVNI, "")[:7]} {
				expect(kernels, payload)
			}
			reserved := inVXLAN(tunnelVNI, "")[:7] + "\xff" + "reserved bits are ignored"
			for _, payload := range []string{
				inVXLAN(tunnelVNI, "a frame"), inVXLAN(tunnelVNI, ""), reserved,
				inVXLAN(tunnelVNI, strings.Repeat("fragments", 500)),
			} {
				expect(dataplane, payload)
			}
			more := f.value()
			more.VNIs = append(more.VNIs, added)
			s.mustCommit(tunnelObject(more))
			s.quiet()
			expect(dataplane, inVXLAN(added, "a frame of a new network"))
			expect(kernels, inVXLAN(4096, "of another program"))

			s.mustCommit(tunnelObject(f.value()))
			s.quiet()
			expect(kernels, inVXLAN(added, "a frame of a deleted network"))
			expect(dataplane, inVXLAN(tunnelVNI, "a frame of the network that stays"))

			left := f.value()
			left.Peers = []netip.Addr{netip.MustParseAddr(f.stranger)}
			s.mustCommit(tunnelObject(left))
			s.quiet()
			expect(kernels, inVXLAN(tunnelVNI, "a frame of a node that has left"))
		})
	}
}

func TestTunnelTableIsCreatedRepairedAndDeleted(t *testing.T) {
	l := newTableLab(t)
	t.Cleanup(func() { must(t, RemoveTunnelNAT()) })
	four := tunnelFamilies["IPv4"]
	six := tunnelFamilies["IPv6"]
	six.inner = neutral(t, six.node)
	none := four.value()
	none.Peers = nil
	for _, v := range []wire.TunnelNAT{four.value(), none, six.value(), four.value()} {
		l.mustCommit(tunnelObject(v))
		l.quiet()
	}
	chains := tunnelChains(four.value())
	for name, spoil := range map[string]func(c *nftables.Conn){
		"the table is missing":  func(c *nftables.Conn) { c.DelTable(inetTable(tunnelTableName)) },
		"rules are missing":     func(c *nftables.Conn) { c.FlushChain(chains[0].Chain) },
		"a chain is missing":    func(c *nftables.Conn) { c.FlushChain(chains[1].Chain); c.DelChain(chains[1].Chain) },
		"the peers are missing": func(c *nftables.Conn) { c.FlushSet(peersSet(true)) },
		"the VNIs are missing":  func(c *nftables.Conn) { c.FlushSet(vnisSet()) },
		"a VNI was added": func(c *nftables.Conn) {
			must(t, c.SetAddElements(vnisSet(), []nftables.SetElement{{Key: vniWord(4096)}}))
		},
		"a rule was repeated": func(c *nftables.Conn) {
			c.AddRule(&nftables.Rule{
				Table: inetTable(tunnelTableName),
				Chain: chains[1].Chain,
				Exprs: chains[1].rules[0],
			})
		},
		"the table is of a release without VNIs": func(c *nftables.Conn) {
			c.DelTable(inetTable(tunnelTableName))
			c.AddTable(inetTable(tunnelTableName))
			must(t, c.AddSet(peersSet(true), []nftables.SetElement{{Key: []byte{192, 0, 2, 2}}}))
			for _, chain := range chains {
				c.AddChain(chain.Chain)
			}
		},
		"a peer was added": func(c *nftables.Conn) {
			must(t, c.SetAddElements(peersSet(true), []nftables.SetElement{{Key: []byte{192, 0, 2, 9}}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := nft(t)
			spoil(c)
			must(t, c.Flush())
			l.staysDifferent(wire.TunnelNATKey())
			if got := l.different(); !slices.Equal(got, []string{wire.TunnelNATKey()}) {
				t.Errorf("objects %v differ", got)
			}
			l.resync()
			l.quiet()
		})
	}
	l.mustCommit(object{key: wire.TunnelNATKey()})
	l.quiet()
	tables, err := nft(t).ListTables()
	must(t, err)
	if len(tables) != 0 {
		t.Errorf("%d tables are left", len(tables))
	}
	must(t, tunnelTable.table(six.value()).replace())
	l.resync() // no agent has recorded it
	if _, found, err := tunnelTable.read(nil); err != nil || found {
		t.Errorf("found %t, %v", found, err)
	}
}
