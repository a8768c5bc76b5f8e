package mesh

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
)

// Finding 2 of issue 12: a pod replays a tunnel packet to another node, and its own node masquerades it. The test first
// shows that the other node's pods accept the packet.
func TestPodCannotInjectIntoTheTunnelsOfAnotherNode(t *testing.T) {
	for _, o := range []options{{tunnel: "vxlan4"}, {tunnel: "vxlan6"}, {tunnel: "vxlan4", uplink: "up0"}} {
		t.Run(owner(o.uplink)+", "+o.tunnel, func(t *testing.T) {
			c := newCluster(t, o)
			c.meet()
			for _, m := range c.nodes {
				m.addPod()
			}
			from := c.nodes[0]
			to := c.nodes[1]
			six := o.tunnel == "vxlan6"
			sender := attack(t, from.pod.Netns)
			victim := listen(t, to.pod.Netns)
			packet := to.capture(t, six, func() {
				write(t, sender, netip.AddrPortFrom(to.address(false), port(victim)), "to be replayed")
			})
			await(t, victim, "to be replayed")
			target := netip.AddrPortFrom(to.own(six), tunnelPort)

			must.Succeed(t, from.StopAgent()) // which would repair the table at once
			from.flushGuard(t)
			write(t, sender, target, packet)
			await(t, victim, "to be replayed")

			from.restart(t) // which repairs the table
			write(t, sender, target, packet)
			raw := make([]byte, 1<<16)
			for deadline := time.Now().Add(20 * time.Second); from.guarded(t) == 0; {
				must.Succeed(t, victim.SetReadDeadline(time.Now().Add(time.Millisecond)))
				n, err := victim.Read(raw)
				if err == nil {
					t.Fatalf("the victim received %q", raw[:n])
				}
				if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline) {
					t.Fatalf("the guard did not drop the packet, and the victim did not receive it: %v", err)
				}
			}
			write(t, sender, netip.AddrPortFrom(to.address(false), port(victim)), "by the tunnel")
			await(t, victim, "by the tunnel")
		})
	}
}

const tunnelPort = 4789

func listen(t *testing.T, namespace string) *net.UDPConn {
	return listenWith(t, namespace, net.ListenConfig{})
}

// attack opens a socket whose packets have no checksum. VPP applies a checksum that the kernel left to it, that of the
// outer packet, to the inner one, which the victim's kernel then drops: an attacker would not leave one.
func attack(t *testing.T, namespace string) *net.UDPConn {
	return listenWith(t, namespace, net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_NO_CHECK6_TX, 1))
		}), err)
	}})
}

func listenWith(t *testing.T, namespace string, config net.ListenConfig) (c *net.UDPConn) {
	t.Helper()
	netnstest.Do(t, namespace, func() {
		opened, err := config.ListenPacket(t.Context(), "udp", ":0")
		must.Succeed(t, err)
		c = opened.(*net.UDPConn)
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func port(c *net.UDPConn) uint16 { return c.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

func write(t *testing.T, c *net.UDPConn, to netip.AddrPort, text string) {
	t.Helper()
	_, err := c.WriteToUDPAddrPort([]byte(text), to)
	must.Succeed(t, err)
}

func await(t *testing.T, c *net.UDPConn, want string) {
	t.Helper()
	raw := make([]byte, 1<<16)
	must.Succeed(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	n, err := c.Read(raw)
	if err != nil || string(raw[:n]) != want {
		t.Fatalf("received %q, %v; want %q", raw[:n], err, want)
	}
}

// capture returns the UDP payload of a packet to the tunnels' port that arrives at the node's network card with the
// text in it.
func (m *machine) capture(t *testing.T, six bool, send func()) string {
	t.Helper()
	const everything = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
	var fd int
	m.inside(func() {
		card, err := net.InterfaceByName("up0")
		must.Succeed(t, err)
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, everything)
		must.Succeed(t, err)
		must.Succeed(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: card.Index}))
		must.Succeed(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	})
	defer unix.Close(fd)
	send()
	udp := 14 + 20
	kind := uint16(unix.ETH_P_IP)
	if six {
		udp = 14 + 40
		kind = unix.ETH_P_IPV6
	}
	raw := make([]byte, 1<<16)
	for {
		n, err := unix.Read(fd, raw)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		must.Succeed(t, err)
		const inner = 8 + 8 + 14 + 20 + 8 // UDP, VXLAN, Ethernet, IPv4, UDP
		if n < udp+inner+4 || binary.BigEndian.Uint16(raw[12:]) != kind ||
			binary.BigEndian.Uint16(raw[udp+2:]) != tunnelPort {
			continue
		}
		if p := raw[udp+inner : n]; len(p) >= 14 && string(p[:14]) == "to be replayed" {
			return string(raw[udp+8 : n])
		}
	}
}

// guardChain is the chain that drops packets of pods to the tunnels of other nodes.
var guardChain = &nftables.Chain{
	Name:  "guard-forward",
	Table: &nftables.Table{Family: nftables.TableFamilyINet, Name: "weft"},
}

func (m *machine) flushGuard(t *testing.T) {
	t.Helper()
	m.inside(func() {
		c, err := nftables.New()
		must.Succeed(t, err)
		c.FlushChain(guardChain)
		must.Succeed(t, c.Flush())
	})
}

// guarded returns the number of packets that the chain has dropped.
func (m *machine) guarded(t *testing.T) (sum uint64) {
	t.Helper()
	m.inside(func() {
		c, err := nftables.New()
		must.Succeed(t, err)
		rules, err := c.GetRules(guardChain.Table, guardChain)
		must.Succeed(t, err)
		for _, rule := range rules {
			for _, e := range rule.Exprs {
				if counter, is := e.(*expr.Counter); is {
					sum += counter.Packets
				}
			}
		}
	})
	return sum
}
