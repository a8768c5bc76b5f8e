package ipnet

import (
	"net/netip"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// claim is that somebody has an address on a network.
type claim struct {
	network string
	address netip.Addr
	holder  string // "" = whoever
}

// claims weighs who has an address that several attachments were kept with: one of them handed it over to another.
type claims struct {
	leased map[claim]bool // as the kept leases say
	before map[pod.Key]*connection
	owners map[claim]*connection
}

// settle leaves such an address to whom it was leased last, else to whom it was restored before, else to the youngest.
func (n *Network) settle(before map[pod.Key]*connection, kept []ipam.Lease) {
	cl := claims{leased: make(map[claim]bool), before: before, owners: make(map[claim]*connection)}
	for _, l := range kept {
		if l.State == ipam.Used {
			cl.leased[claim{networkOfPool(l.Pool), l.Address, l.Holder}] = true
		}
	}
	for _, c := range n.inOrder() {
		for _, i := range c.Interfaces {
			cl.weigh(c, i)
		}
	}
	for _, c := range n.wired {
		for at := range c.Interfaces {
			cl.leave(c, &c.Interfaces[at])
		}
	}
}

// weigh makes a connection the owner of an interface's addresses, but for those on which another's claim is better.
func (cl claims) weigh(c *connection, i pod.Interface) {
	for _, p := range i.Addresses {
		address := claim{network: i.Network, address: p.Addr()}
		if o := cl.owners[address]; o == nil || cl.better(c, o, address) {
			cl.owners[address] = c
		}
	}
}

// better reports whether c's claim on an address is better than o's.
func (cl claims) better(c, o *connection, address claim) bool {
	if mine, theirs := cl.weight(c, address), cl.weight(o, address); mine != theirs {
		return mine > theirs
	}
	return o.Created.Before(c.Created)
}

func (cl claims) weight(c *connection, address claim) int {
	for _, i := range c.Interfaces {
		address.holder = holderOf(c.Key, i.Name)
		if i.Network == address.network && addressIn(i, address.address) >= 0 && cl.leased[address] {
			return 2
		}
	}
	if cl.before[c.Key] != nil {
		return 1
	}
	return 0
}

// leave takes from an interface what another attachment owns.
func (cl claims) leave(c *connection, i *pod.Interface) {
	for at := len(i.Addresses) - 1; at >= 0; at-- {
		a := i.Addresses[at].Addr()
		if cl.owners[claim{network: i.Network, address: a}] != c {
			drop(i, a)
		}
	}
}
