package k8s

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Overview is what watches show of the objects that the cluster's one writer of status looks at: those of all nodes.
type Overview struct {
	log     *slog.Logger
	changed chan struct{}

	networks  *watched[*v1.CustomNetwork]
	pools     *watched[*v1.IPPool]
	blocks    *watched[*v1.IPBlock]
	nodes     *watched[*v1.NodeNetwork]
	externals *watched[*v1.ExternalInterface]
	machines  *watched[*corev1.Node] // nil: nobody asks for taints
	watches   []follower
}

// NewOverview makes an overview of which nothing is known yet, with the nodes' taints if these are asked for. Nothing is
// sent before Run.
func NewOverview(client *Client, taints bool, log *slog.Logger) (*Overview, error) {
	o := &Overview{log: log, changed: make(chan struct{}, 1)}
	poke := func(string) {
		select {
		case o.changed <- struct{}{}:
		default: // it is known already
		}
	}
	var errs [6]error
	o.networks, errs[0] = follow[*v1.CustomNetwork]("custom networks", client.Networks(), narrow{}, poke)
	o.pools, errs[1] = follow[*v1.IPPool]("pools", client.Pools(), narrow{}, poke)
	o.blocks, errs[2] = follow[*v1.IPBlock]("blocks", client.Blocks(), narrow{}, poke)
	o.nodes, errs[3] = follow[*v1.NodeNetwork]("node networks", client.NodeNetworks(), narrow{}, poke)
	o.externals, errs[4] = follow[*v1.ExternalInterface]("external interfaces", client.Externals(), narrow{}, poke)
	o.watches = []follower{o.networks, o.pools, o.blocks, o.nodes, o.externals}
	if taints {
		o.machines, errs[5] = follow[*corev1.Node]("nodes", client.Nodes(), narrow{}, func(name string) {
			if n, exists := o.machines.one(name); exists && isTainted(n) { // of the others there is news all the time
				poke(name)
			}
		})
		o.watches = append(o.watches, o.machines)
	}
	for i, w := range o.watches {
		if errs[i] == nil {
			errs[i] = w.logErrors(log)
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("k8s: watch: %w", err)
	}
	return o, nil
}

// Run watches until ctx ends. Without an API server it tries again and again; what is known stays known.
func (o *Overview) Run(ctx context.Context) error {
	ctx = quiet(ctx, o.log)
	running, ctx := errgroup.WithContext(ctx)
	for _, w := range o.watches {
		running.Go(func() error {
			w.run(ctx)
			return ctx.Err()
		})
	}
	return running.Wait()
}

// Changed is where something arrives when an object may have changed since it was looked at last. It has one reader.
func (o *Overview) Changed() <-chan struct{} { return o.changed }

// Missing names what the API server has not shown yet; nil: all objects have been seen once.
func (o *Overview) Missing() []string {
	var missing []string
	for _, w := range o.watches {
		if !w.synced() {
			missing = append(missing, w.name())
		}
	}
	return missing
}

// Networks are the custom networks. They, as all that is listed here, are shared and must not be changed.
func (o *Overview) Networks() []*v1.CustomNetwork { return o.networks.all() }

// Pools are the pools of addresses.
func (o *Overview) Pools() []*v1.IPPool { return o.pools.all() }

// Blocks are the blocks of all nodes.
func (o *Overview) Blocks() []*v1.IPBlock { return o.blocks.all() }

// Nodes are what all nodes say of themselves.
func (o *Overview) Nodes() []*v1.NodeNetwork { return o.nodes.all() }

// Externals are the interfaces to the outside.
func (o *Overview) Externals() []*v1.ExternalInterface { return o.externals.all() }
