package mesh

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
)

// pathMTU is the MTU of a path between nodes that is narrower than their cards.
const pathMTU = 1400

// path is a path of pathMTU between the nodes:
//
//	routers: up0 - router 1 --- pathMTU --- router 2 - up0
//	a switch: up0 - ports of pathMTU - up0
type path struct {
	routers bool // else a switch, which drops long frames without a word
	silent  bool // the routers send no ICMP errors

	middle [2]string // namespaces of the routers; of the switch the first one
}

func (p *path) String() string {
	switch {
	case !p.routers:
		return "a switch"
	case p.silent:
		return "silent routers"
	}
	return "routers"
}

// addresses are those of node n. Behind routers each node has subnets of its own.
func (p *path) addresses(n int) []netip.Prefix {
	if !p.routers {
		return []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", n)),
			netip.MustParsePrefix(fmt.Sprintf("2001:db8:ff::%d/64", n)),
		}
	}
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/26", 64*n+1)),
		netip.MustParsePrefix(fmt.Sprintf("2001:db8:ff:%d::1/64", n)),
	}
}

// connect connects the nodes of a cluster.
func (p *path) connect(c *cluster) {
	t := c.t
	t.Helper()
	p.middle[0] = netnstest.New(t)
	p.middle[1] = p.middle[0]
	if p.routers {
		p.middle[1] = netnstest.New(t)
		netnstest.Do(t, p.middle[0], func() { pair(t, "inner", "inner", p.middle[1]) })
	}
	for i, m := range c.nodes {
		m.inside(func() { pair(t, "up0", fmt.Sprint("node", i+1), p.middle[i]) })
		m.raise()
	}
	up, err := netlink.LinkByName("up0")
	must.Succeed(t, err)
	c.uncable(up)
	if !p.routers {
		netnstest.Do(t, p.middle[0], func() { p.bridge(t) })
	}
	for i, m := range c.nodes {
		if p.routers {
			netnstest.Do(t, p.middle[i], func() { p.route(t, i, c.nodes) })
			m.inside(func() {
				up := linkOf(t, "up0")
				for _, a := range m.addresses {
					routeBy(t, up, netip.PrefixFrom(a.Addr(), 0).Masked(), a.Addr().Next())
				}
			})
		}
	}
	p.setMTU(t, pathMTU)
}

// pair makes a veth with an end in another namespace.
func pair(t *testing.T, name, peer, in string) {
	t.Helper()
	f, err := os.Open(in)
	must.Succeed(t, err)
	defer f.Close()
	must.Succeed(t, netlink.LinkAdd(&netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: name, MTU: uplinkMTU},
		PeerName:      peer,
		PeerMTU:       uplinkMTU,
		PeerNamespace: netlink.NsFd(f.Fd()),
	}))
}

func linkOf(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must.Succeed(t, err)
	return l
}

func routeBy(t *testing.T, by netlink.Link, to netip.Prefix, gateway netip.Addr) {
	t.Helper()
	must.Succeed(t,
		netlink.RouteAdd(&netlink.Route{LinkIndex: by.Attrs().Index, Dst: ipNet(to), Gw: gateway.AsSlice()}))
}

// bridge makes the calling thread's namespace a switch.
func (p *path) bridge(t *testing.T) {
	t.Helper()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}
	must.Succeed(t, netlink.LinkAdd(bridge))
	must.Succeed(t, netlink.LinkSetUp(bridge))
	for _, name := range []string{"node1", "node2"} {
		must.Succeed(t, netlink.LinkSetMaster(linkOf(t, name), bridge))
		must.Succeed(t, netlink.LinkSetUp(linkOf(t, name)))
	}
}

// route makes the calling thread's namespace router i.
func (p *path) route(t *testing.T, i int, nodes [2]*machine) {
	t.Helper()
	for _, sysctl := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		must.Succeed(t, os.WriteFile("/proc/sys/net/"+sysctl, []byte("1"), 0))
	}
	near := linkOf(t, fmt.Sprint("node", i+1))
	inner := linkOf(t, "inner")
	add := func(on netlink.Link, a netip.Addr, bits int) {
		must.Succeed(t,
			netlink.AddrAdd(on, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, bits)), Flags: unix.IFA_F_NODAD}))
	}
	must.Succeed(t, netlink.LinkSetUp(near))
	must.Succeed(t, netlink.LinkSetUp(inner))
	ends := [2][]netip.Addr{
		{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:ff::1")},
		{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8:ff::2")},
	}
	for f, own := range nodes[i].addresses {
		add(near, own.Addr().Next(), own.Bits())
		add(inner, ends[i][f], own.Bits())
		routeBy(t, inner, nodes[1-i].addresses[f].Masked(), ends[1-i][f])
	}
	if p.silent {
		silence(t)
	}
}

// silence drops the namespace's own ICMP errors of packets that are too big.
func silence(t *testing.T) {
	t.Helper()
	nft, err := nftables.New()
	must.Succeed(t, err)
	table := nft.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "silent"})
	chain := nft.AddChain(&nftables.Chain{
		Name:     "output",
		Table:    table,
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookOutput,
		Priority: nftables.ChainPriorityFilter,
	})
	for protocol, kind := range map[byte]byte{unix.IPPROTO_ICMP: 3, unix.IPPROTO_ICMPV6: 2} {
		nft.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{kind}},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
	}
	must.Succeed(t, nft.Flush())
}

// setMTU sets the MTU of the path.
func (p *path) setMTU(t *testing.T, mtu int) {
	t.Helper()
	if p.routers {
		for _, in := range p.middle {
			netnstest.Do(t, in, func() { must.Succeed(t, netlink.LinkSetMTU(linkOf(t, "inner"), mtu)) })
		}
		return
	}
	netnstest.Do(t, p.middle[0], func() {
		for _, name := range []string{"node1", "node2"} {
			must.Succeed(t, netlink.LinkSetMTU(linkOf(t, name), mtu))
		}
	})
}
