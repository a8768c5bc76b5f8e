package linux

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/weftnet/weft/wire"
)

// beforeTunnels is the priority of the guard in prerouting: behind the reassembly of fragments (-400), so that no fragment
// passes for lack of a UDP header, and before tunnel packets get the address of the dataplane's end (-300, tunnelChains). The
// kernel reassembles wherever a table translates addresses, as the one of the guard does.
var beforeTunnels = nftables.ChainPriorityRef(*nftables.ChainPriorityRaw - 10)

// guardChains are the chains of wire.TunnelGuard. Each rule counts what it drops. Locally made packets pass neither chain.
//
// Prerouting:
//  1. Pods do not reach the tunnels of this node, whatever source address they send from.
//
// Forward, which packets pass behind all translations of their destination and before those of their source:
//  1. Pods reach no tunnel elsewhere, by whatever address. What goes back into the dataplane may pass, for example to a pod of a
//     Service: pods' VRFs have no tunnel ends.
//  2. Third-party packets that this node forwards to a node, such as pods of another CNI. Nodes may route for each other.
//  3. Packets that came to this node as something else and were redirected to a node, as by a NodePort of a Service: the source
//     may be that of a pod's node already.
func guardChains(table *nftables.Table, v wire.Masquerade) []tableChain {
	prerouting := &nftables.Chain{
		Name: "guard-prerouting", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: beforeTunnels,
	}
	forward := &nftables.Chain{
		Name: "guard-forward", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter,
	}
	if v.Guard.Port == 0 {
		return []tableChain{{prerouting, nil}, {forward, nil}}
	}
	fromPods, toTunnel := link(expr.MetaKeyIIFNAME, expr.CmpOpEq, v.Link), udpTo(v.Guard.Port)
	rules := [][]expr.Any{slices.Concat(fromPods, link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, v.Link), toTunnel, drop())}
	for _, is4 := range []bool{true, false} {
		toNode := slices.Concat(notFromTunnels(v.Guard), family46(is4), toTunnel, inSet("nodes", destination(is4), is4, false))
		rules = append(rules,
			slices.Concat(toNode, inSet("nodes", source(is4), is4, true), drop()),
			slices.Concat(toNode, redirected(), drop()))
	}
	return []tableChain{
		{prerouting, [][]expr.Any{slices.Concat(fromPods, toTunnel, isLocal(&expr.Fib{FlagDADDR: true}), drop())}},
		{forward, rules},
	}
}

// notFromTunnels leaves out what the dataplane sends by its link for tunnels.
func notFromTunnels(g wire.TunnelGuard) []expr.Any {
	if g.Link == "" {
		return nil
	}
	return link(expr.MetaKeyIIFNAME, expr.CmpOpNeq, g.Link)
}

func drop() []expr.Any { return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}} }
