package mesh

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/ping"
	"github.com/weftnet/weft/test/traffic"
)

const (
	pings       = 1000
	answerLimit = 10 * time.Second
	amount      = 100 << 20 // bytes
)

// tunnels is the uplink's MTU minus the overhead of a tunnel.
var tunnels = map[string]int{"vxlan4": uplinkMTU - 50, "vxlan6": uplinkMTU - 70}

func TestPodsOfTwoNodesReachEachOtherWithoutLoss(t *testing.T) {
	for _, uplink := range []string{"", "up0"} {
		for tunnel, mtu := range tunnels {
			t.Run(owner(uplink)+", "+tunnel, func(t *testing.T) {
				exchangeAll(t, options{tunnel: tunnel, uplink: uplink}, mtu)
			})
		}
	}
}

// owner names the owner of the network card.
func owner(uplink string) string {
	if uplink == "" {
		return "card of the kernel"
	}
	return "card of the dataplane"
}

// exchangeAll tests all directions of both families.
func exchangeAll(t *testing.T, o options, mtu int) {
	t.Helper()
	c := newCluster(t, o)
	c.meet()
	for _, m := range c.nodes {
		m.addPod()
	}
	for i, m := range c.nodes {
		for _, six := range []bool{false, true} {
			c.exchange(m, c.nodes[1-i], six, mtu)
		}
	}
	for _, m := range c.nodes {
		m.wantNothingToRepair()
	}
}

// exchange tests one direction of one family.
func (c *cluster) exchange(from, to *machine, six bool, mtu int) {
	c.t.Helper()
	what := fmt.Sprintf("%s to %s, IPv6 %t", from.name, to.name, six)
	address := to.address(six)
	p, err := ping.Open(from.pod.Netns, address)
	must.Succeed(c.t, err)
	defer func() { must.Succeed(c.t, p.Close()) }()
	lost := 0
	for seq := range pings {
		// A reply may be late on a busy machine; a lost one never arrives.
		ctx, cancel := context.WithTimeout(c.t.Context(), answerLimit)
		_, err := p.Once(ctx, address, seq+1)
		cancel()
		if err != nil {
			lost++
			c.t.Errorf("%s: ping %d: %v", what, seq+1, err)
			if lost > 3 {
				c.t.FailNow()
			}
		}
	}
	data := make([]byte, amount)
	_, _ = rand.Read(data) // it never fails
	r, err := traffic.Transfer(c.t.Context(), traffic.Path{From: from.pod.Netns, To: to.pod.Netns, Address: address},
		data)
	if err != nil || r.Bytes != amount || r.Sum != sha256.Sum256(data) {
		c.t.Fatalf("%s: %d of %d bytes arrived, or other bytes: %v", what, r.Bytes, amount, err)
	}
	c.t.Logf("%s: %d pings, %d lost; %d bytes at %.2f Gbit/s", what, pings, lost, r.Bytes, r.Gigabits())
	if got := from.podMTU(); got != mtu {
		c.t.Errorf("%s: the pod's MTU is %d, want %d", what, got, mtu)
	}
	if err := from.echo(address, mtu); err != nil {
		c.t.Errorf("%s: a packet of %d bytes with DF: %v", what, mtu, err)
	}
}

func (m *machine) podMTU() (mtu int) {
	m.t.Helper()
	netnstest.Do(m.t, m.pod.Netns, func() {
		l, err := netlink.LinkByName("eth0")
		must.Succeed(m.t, err)
		mtu = l.Attrs().MTU
	})
	return mtu
}

// echo sends an ICMP echo request in an unfragmentable packet of length bytes and waits for the reply.
func (m *machine) echo(to netip.Addr, length int) error {
	m.t.Helper()
	return echo(m.t, m.pod.Netns, to, length)
}

// echo sends an ICMP echo request as above from a namespace.
func echo(t *testing.T, from string, to netip.Addr, length int) (err error) {
	t.Helper()
	network := "ip4:icmp"
	listen := "0.0.0.0"
	header := 20
	proto := 1
	var (
		request icmp.Type = ipv4.ICMPTypeEcho
		reply   icmp.Type = ipv4.ICMPTypeEchoReply
	)
	level := unix.IPPROTO_IP
	option := unix.IP_MTU_DISCOVER
	value := unix.IP_PMTUDISC_DO
	if to.Is6() {
		network = "ip6:ipv6-icmp"
		listen = "::"
		header = 40
		proto = 58
		request = ipv6.ICMPTypeEchoRequest
		reply = ipv6.ICMPTypeEchoReply
		level = unix.IPPROTO_IPV6
		option = unix.IPV6_MTU_DISCOVER
		value = unix.IPV6_PMTUDISC_DO
	}
	var conn net.PacketConn
	within(t, from, func() {
		config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			var set error
			return errors.Join(
				raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, value) }), set)
		}}
		conn, err = config.ListenPacket(t.Context(), network, listen)
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	message := icmp.Message{Type: request, Body: &icmp.Echo{ID: 4711, Seq: length, Data: make([]byte, length-header-8)}}
	raw, err := message.Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := conn.WriteTo(raw, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	answer := make([]byte, 1<<16)
	for {
		n, _, err := conn.ReadFrom(answer)
		if err != nil {
			return err
		}
		got, err := icmp.ParseMessage(proto, answer[:n])
		if err != nil {
			return err
		}
		if echo, is := got.Body.(*icmp.Echo); is && got.Type == reply && echo.ID == 4711 &&
			len(echo.Data) == length-header-8 {
			return nil
		}
	}
}

// wantNothingToRepair fails if a resync makes operations.
func (m *machine) wantNothingToRepair() {
	m.t.Helper()
	m.weftctl("resync")
	var reply struct {
		Transactions []struct {
			Origin string
			Ops    []struct{ Ref, Verb string } `json:"operations"`
		}
	}
	must.Succeed(m.t, json.Unmarshal([]byte(m.weftctl("transactions", "1", "-o", "json")), &reply))
	if len(reply.Transactions) != 1 || reply.Transactions[0].Origin != "resync" {
		m.t.Fatalf("%s: the last transaction after a resync is %+v", m.name, reply.Transactions)
	}
	if ops := reply.Transactions[0].Ops; len(ops) > 0 {
		m.t.Errorf("%s: operations of a resync: %v", m.name, ops)
	}
}
