package blocks

import (
	"cmp"
	"net/netip"
	"slices"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Share is what a node has of a pool, as the nodes told last.
type Share struct {
	Pool Pool // of a block that is of no pool: the names that it says, and no prefix
	Node string

	Blocks              int
	Used, Cooling, Free int // of the addresses of its blocks; what is offered to other nodes is none of them
	Offered             int // to other nodes, whether they borrow it or not
	Borrowed            int // from blocks of other nodes
}

// Shares lists what nodes have of the pools, in the order of the pools and by the nodes' names. Blocks without an owner are those
// of the node "".
func Shares(pools []Pool, list []v1.IPBlock) []Share {
	byWhom := make(map[Share]*Share) // by a share that tells of pool and node only
	of := func(p Pool, node string) *Share {
		key := Share{Pool: p, Node: node}
		if byWhom[key] == nil {
			byWhom[key] = &Share{Pool: p, Node: node}
		}
		return byWhom[key]
	}
	for i := range list {
		b := &list[i]
		p := poolOf(b, pools)
		own := of(p, string(b.Spec.Node))
		own.Blocks++
		own.Offered += len(b.Spec.Offered)
		own.Used, own.Cooling, own.Free = own.Used+int(b.Status.Used), own.Cooling+int(b.Status.Cooling), own.Free+int(b.Status.Free)
		for _, l := range b.Spec.Borrowed {
			of(p, string(l.Node)).Borrowed++
		}
	}
	var shares []Share
	for _, s := range byWhom {
		shares = append(shares, *s)
	}
	rank := ranks(pools)
	slices.SortFunc(shares, func(x, y Share) int {
		return cmp.Or(cmp.Compare(rank(x.Pool), rank(y.Pool)), cmp.Compare(x.Pool.Key(), y.Pool.Key()), cmp.Compare(x.Node, y.Node))
	})
	return shares
}

// ranks orders pools as they are listed; others come last.
func ranks(pools []Pool) func(Pool) int {
	rank := make(map[Pool]int, len(pools))
	for i, p := range pools {
		rank[p] = i
	}
	return func(p Pool) int {
		if at, listed := rank[p]; listed {
			return at
		}
		return len(pools)
	}
}

// poolOf is the pool that a block is of.
func poolOf(b *v1.IPBlock, pools []Pool) Pool {
	prefix, _ := netip.ParsePrefix(string(b.Spec.CIDR)) // one that is not valid is in no pool
	for _, p := range pools {
		if p.Name == b.Spec.Pool && p.Network == string(b.Spec.Network) && p.Has(prefix) {
			return p
		}
	}
	return Pool{Name: b.Spec.Pool, Network: string(b.Spec.Network)}
}
