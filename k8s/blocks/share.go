package blocks

import (
	"cmp"
	"slices"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Share is the part of a pool that a node has, as last published.
type Share struct {
	Pool Pool // for a block without a pool: the names in the block, and no prefix
	Node string

	Blocks              int
	Used, Cooling, Free int // addresses of its blocks, without those offered to other nodes
	Offered             int // to other nodes, borrowed or not
	Borrowed            int // from blocks of other nodes
}

// Shares lists the shares of all nodes, in the order of the pools and by the nodes' names. Blocks without an owner belong to the node "".
func Shares(pools []Pool, list []v1.IPBlock) []Share {
	found := make(map[Share]*Share) // by a share with pool and node only
	of := func(p Pool, node string) *Share {
		key := Share{Pool: p, Node: node}
		if found[key] == nil {
			found[key] = &Share{Pool: p, Node: node}
		}
		return found[key]
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
	for _, s := range found {
		shares = append(shares, *s)
	}
	rank := func(p Pool) int { // other pools come last
		return cmp.Or(slices.Index(pools, p)+1, len(pools)+1)
	}
	slices.SortFunc(shares, func(x, y Share) int {
		return cmp.Or(cmp.Compare(rank(x.Pool), rank(y.Pool)), cmp.Compare(x.Pool.Key(), y.Pool.Key()), cmp.Compare(x.Node, y.Node))
	})
	return shares
}

// poolOf returns the pool of a block.
func poolOf(b *v1.IPBlock, pools []Pool) Pool {
	owns := func(p Pool) bool { return p.Owns(b, b.Spec.CIDR.Prefix()) } // false for an invalid prefix
	if i := slices.IndexFunc(pools, owns); i >= 0 {
		return pools[i]
	}
	return Pool{Name: b.Spec.Pool, Network: string(b.Spec.Network)}
}
