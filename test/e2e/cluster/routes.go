package cluster

import (
	"context"
	"errors"
)

// RoutePods adds kernel routes between the pods of the node and of the other running nodes, as a network of routers
// does. It replaces older routes, because a node that joins again may have new ranges.
func (n *Node) RoutePods(ctx context.Context) error {
	ranges, err := n.PodCIDRs(ctx)
	if err != nil {
		return err
	}
	for _, other := range n.cluster.Nodes {
		if other == n || !other.Running() {
			continue
		}
		theirs, err := other.PodCIDRs(ctx)
		if err != nil {
			return err
		}
		for i := range ranges { // all lists have the families in the same order
			if err := errors.Join(n.Route(theirs[i], other.Addresses[i]),
				other.Route(ranges[i], n.Addresses[i])); err != nil {
				return err
			}
		}
	}
	return nil
}
