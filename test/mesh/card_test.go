package mesh

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/ping"
	"github.com/weftnet/weft/test/traffic"
)

// own returns the node's address of a family.
func (m *machine) own(six bool) netip.Addr {
	at := slices.IndexFunc(m.addresses, func(p netip.Prefix) bool { return p.Addr().Is6() == six })
	return m.addresses[at].Addr()
}

func TestNodesWhoseDataplaneOwnsTheCard(t *testing.T) {
	c := newCluster(t, options{tunnel: "vxlan4", uplink: "up0"})
	c.meet()
	for _, m := range c.nodes {
		m.addPod()
		m.wantCard("weft-uplink0", "up0")
	}
	for i, m := range c.nodes {
		other := c.nodes[1-i]
		for _, six := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s to %s, IPv6 %t", m.name, other.name, six), func(t *testing.T) {
				c.fromNode(t, m, other, six)
			})
		}
	}
	t.Run("a pod reaches a machine by the node's address", func(t *testing.T) {
		for _, six := range []bool{false, true} {
			c.wantMasquerade(t, c.nodes[0], c.nodes[1], six)
		}
	})
	t.Run("a NodePort leads to a pod", func(t *testing.T) { c.wantNodePort(t, c.nodes[0], c.nodes[1]) })
	t.Run("the agent restarts", func(t *testing.T) {
		m := c.nodes[0]
		must.Succeed(t, m.StopAgent())
		m.restart(t)
		m.wantFirstResyncIdle(t)
	})
	t.Run("the dataplane is killed", func(t *testing.T) {
		for _, m := range c.nodes {
			must.Succeed(t, m.KillDataplane())
		}
		for i, m := range c.nodes {
			for _, six := range []bool{false, true} {
				reach(t, m.namespace, c.nodes[1-i].own(six))
				reach(t, m.pod.Netns, c.nodes[1-i].address(six))
			}
		}
		for _, m := range c.nodes {
			must.Succeed(t, m.AwaitReady(t.Context()))
			m.wantNothingToRepair()
			m.wantCard("weft-uplink0", "up0")
			m.wantReplayWithoutCard(t)
		}
	})
	t.Run("the kernel gets the card back", func(t *testing.T) { c.wantGivenBack(t) })
}

// restart restarts the node's agent.
func (m *machine) restart(t *testing.T) {
	t.Helper()
	m.inside(func() { must.Succeed(t, m.BeginAgent("--kubernetes-node", m.name)) })
	must.Succeed(t, m.AwaitReady(t.Context()))
}

// wantFirstResyncIdle fails if the agent's first resync made operations.
func (m *machine) wantFirstResyncIdle(t *testing.T) {
	t.Helper()
	var reply struct {
		Transactions []struct {
			Origin, Label string
			Ops           []struct{ Ref, Verb string } `json:"operations"`
		}
	}
	must.Succeed(t, json.Unmarshal([]byte(m.weftctl("transactions", "100", "-o", "json")), &reply))
	for _, txn := range slices.Backward(reply.Transactions) {
		if txn.Origin != "resync" || !strings.Contains(txn.Label, "start") {
			continue
		}
		if len(txn.Ops) > 0 {
			t.Errorf("operations of the first resync: %v", txn.Ops)
		}
		return
	}
	t.Errorf("no resync at a start in %+v", reply.Transactions)
}

// wantReplayWithoutCard fails unless the kernel had the card during the replay into the new dataplane.
func (m *machine) wantReplayWithoutCard(t *testing.T) {
	t.Helper()
	var reply struct {
		Transactions []struct {
			Ops []struct{ Ref, Verb string } `json:"operations"`
		}
	}
	must.Succeed(t, json.Unmarshal([]byte(m.weftctl("transactions", "100", "-o", "json")), &reply))
	for _, txn := range reply.Transactions {
		at := func(ref, verb string) int {
			return slices.IndexFunc(txn.Ops, func(o struct{ Ref, Verb string }) bool {
				return o.Ref == ref && o.Verb == verb
			})
		}
		given := at("linux.uplink/up0", "delete")
		made := at("vpp.interface/weft-uplink", "create")
		taken := at("linux.uplink/up0", "create")
		if made >= 0 && given >= 0 && given < made && made < taken {
			return
		}
	}
	t.Errorf("%s: no replay returned the card first and moved it last: %+v", m.name, reply.Transactions)
}

// fromNode tests connections from one node's kernel to the other's.
func (c *cluster) fromNode(t *testing.T, from, to *machine, six bool) {
	address := to.own(six)
	reach(t, from.namespace, address) // VPP drops a packet whose next hop it has to resolve
	p, err := ping.Open(from.namespace, address)
	must.Succeed(t, err)
	defer p.Close()
	for seq := range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
		_, err := p.Once(ctx, address, seq+1)
		cancel()
		if err != nil {
			t.Fatalf("ping %d: %v", seq+1, err)
		}
	}
	converse(t, from.namespace, to.namespace, address)
	datagram(t, way{from.namespace, to.namespace}, address, 64)
	refused(t, from.namespace, address)
	if err := echo(t, from.namespace, address, uplinkMTU); err != nil {
		t.Errorf("a packet of %d bytes with DF: %v", uplinkMTU, err)
	}
	data := make([]byte, 20<<20)
	r, err := traffic.Transfer(t.Context(), traffic.Path{From: from.netns(), To: to.netns(), Address: address}, data)
	if err != nil || r.Bytes != int64(len(data)) {
		t.Errorf("%d of %d bytes arrived: %v", r.Bytes, len(data), err)
	}
	t.Logf("%d bytes at %.2f Gbit/s", r.Bytes, r.Gigabits())
}

// netns returns the path of the node's namespace.
func (m *machine) netns() string {
	if m.namespace == "" {
		return fmt.Sprintf("/proc/%d/ns/net", m.AgentPID())
	}
	return m.namespace
}

// wantMasquerade connects from a pod of one node to the other's kernel, which must see the address of the node.
func (c *cluster) wantMasquerade(t *testing.T, from, to *machine, six bool) {
	t.Helper()
	seen := make(chan string, 1)
	address := to.own(six)
	var listener net.Listener
	to.inside(func() {
		l, err := net.Listen("tcp", netip.AddrPortFrom(address, 7010).String())
		must.Succeed(t, err)
		listener = l
	})
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			seen <- err.Error()
			return
		}
		defer conn.Close()
		seen <- netip.MustParseAddrPort(conn.RemoteAddr().String()).Addr().String()
	}()
	netnstest.Do(t, from.pod.Netns, func() {
		conn, err := net.DialTimeout("tcp", listener.Addr().String(), 20*time.Second)
		if err != nil {
			t.Errorf("a pod of %s to %s: %v", from.name, address, err)
			_ = listener.Close()
			return
		}
		_ = conn.Close()
	})
	if got := <-seen; got != from.own(six).String() {
		t.Errorf("%s sees %s, want %s", to.name, got, from.own(six))
	}
}

// wantNodePort makes the node's kernel redirect a port to its pod, as kube-proxy does, and connects to it from the
// other node, from the node and from its own pod.
func (c *cluster) wantNodePort(t *testing.T, m, other *machine) {
	t.Helper()
	const (
		port    = 30080
		podPort = 8080
	)
	pod := m.address(false)
	m.inside(func() {
		nft, err := nftables.New()
		must.Succeed(t, err)
		table := nft.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "nodeport"})
		chain := nft.AddChain(&nftables.Chain{
			Name:     "prerouting",
			Table:    table,
			Type:     nftables.ChainTypeNAT,
			Hooknum:  nftables.ChainHookPrerouting,
			Priority: nftables.ChainPriorityNATDest,
		})
		nft.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
			&expr.Immediate{Register: 1, Data: pod.AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(podPort)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
		}})
		must.Succeed(t, nft.Flush())
		t.Cleanup(func() { nft.DelTable(table); must.Succeed(t, nft.Flush()) })
	})
	var listener net.Listener
	netnstest.Do(t, m.pod.Netns, func() {
		l, err := net.Listen("tcp", netip.AddrPortFrom(pod, podPort).String())
		must.Succeed(t, err)
		listener = l
	})
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("pod"))
			_ = conn.Close()
		}
	}()
	for name, from := range map[string]string{
		"the other node":          other.namespace,
		"a pod of the other node": other.pod.Netns,
	} {
		within(t, from, func() {
			conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(m.own(false), port).String(), 20*time.Second)
			if err != nil {
				t.Errorf("from %s: %v", name, err)
				return
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			got := make([]byte, 3)
			if _, err := conn.Read(got); string(got) != "pod" {
				t.Errorf("from %s: %q, %v", name, got, err)
			}
		})
	}
}

// wantCard fails unless the node's addresses are on the given link only.
func (m *machine) wantCard(on, off string) {
	m.t.Helper()
	m.inside(func() {
		for _, link := range []string{on, off} {
			has := addressesOn(m.t, link)
			for _, p := range m.addresses {
				if slices.Contains(has, p.Addr()) != (link == on) {
					m.t.Errorf("%s: %s has %v", m.name, link, has)
				}
			}
		}
	})
}

// addressesOn returns a link's addresses except link-local ones; none if the link does not exist.
func addressesOn(t *testing.T, link string) (found []netip.Addr) {
	t.Helper()
	l, err := netlink.LinkByName(link)
	if err != nil {
		return nil
	}
	list, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	must.Succeed(t, err)
	for _, a := range list {
		if ip, is := netip.AddrFromSlice(a.IP); is && !ip.Unmap().IsLinkLocalUnicast() {
			found = append(found, ip.Unmap())
		}
	}
	return found
}

// wantGivenBack removes the uplink from the configuration of one node, and then of the other. In between they reach
// each other.
func (c *cluster) wantGivenBack(t *testing.T) {
	for _, m := range c.nodes {
		must.Succeed(t, m.StopAgent())
		must.Succeed(t, m.Uplink(""))
		m.restart(t)
		m.wantCard("up0", "weft-uplink0")
		if _, err := os.Stat(m.State() + "/card-up0.json"); err == nil {
			t.Error("the file of the card still exists")
		}
		for i, from := range c.nodes {
			for _, six := range []bool{false, true} {
				reach(t, from.namespace, c.nodes[1-i].own(six))
				reach(t, from.pod.Netns, c.nodes[1-i].address(six))
			}
		}
		m.wantNothingToRepair()
	}
}
