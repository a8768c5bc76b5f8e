package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
)

// overview is what watches show of the objects that the cluster's one writer of status looks at: those of all nodes.
type overview struct {
	log     *slog.Logger
	changed chan struct{}

	networks  *informer.Informer[*v1.CustomNetwork]
	pools     *informer.Informer[*v1.IPPool]
	blocks    *informer.Informer[*v1.IPBlock]
	nodes     *informer.Informer[*v1.NodeNetwork]
	externals *informer.Informer[*v1.ExternalInterface]
	machines  *informer.Informer[*corev1.Node] // nil: taints are not needed
	watches   []informer.Follower
}

// newOverview makes an overview of which nothing is known yet, with the nodes' taints if these are asked for. Nothing is
// sent before Run.
func newOverview(client *client.Client, taints bool, log *slog.Logger) (*overview, error) {
	o := &overview{log: log, changed: make(chan struct{}, 1)}
	poke := func(string) {
		select {
		case o.changed <- struct{}{}:
		default: // it is known already
		}
	}
	var errs [6]error
	o.networks, errs[0] = informer.New[*v1.CustomNetwork]("custom networks", client.Networks(), informer.Options{}, poke)
	o.pools, errs[1] = informer.New[*v1.IPPool]("pools", client.Pools(), informer.Options{}, poke)
	o.blocks, errs[2] = informer.New[*v1.IPBlock]("blocks", client.Blocks(), informer.Options{}, poke)
	o.nodes, errs[3] = informer.New[*v1.NodeNetwork]("node networks", client.NodeNetworks(), informer.Options{}, poke)
	o.externals, errs[4] = informer.New[*v1.ExternalInterface]("external interfaces", client.Externals(), informer.Options{}, poke)
	o.watches = []informer.Follower{o.networks, o.pools, o.blocks, o.nodes, o.externals}
	if taints {
		o.machines, errs[5] = informer.New[*corev1.Node]("nodes", client.Nodes(), informer.Options{}, func(name string) {
			if n, exists := o.machines.One(name); exists && isTainted(n) { // of the others there is news all the time
				poke(name)
			}
		})
		o.watches = append(o.watches, o.machines)
	}
	for i, w := range o.watches {
		if errs[i] == nil {
			errs[i] = w.LogErrors(log)
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("controller: watch: %w", err)
	}
	return o, nil
}

// Run watches until ctx ends. Without an API server it tries again and again; what is known stays known.
func (o *overview) Run(ctx context.Context) error {
	ctx = informer.Quiet(ctx, o.log)
	running, ctx := errgroup.WithContext(ctx)
	for _, w := range o.watches {
		running.Go(func() error {
			w.Run(ctx)
			return ctx.Err()
		})
	}
	return running.Wait()
}

// Changed is where something arrives when an object may have changed since it was looked at last. It has one reader.
func (o *overview) Changed() <-chan struct{} { return o.changed }

// Missing names what the API server has not shown yet; nil: all objects have been seen once.
func (o *overview) Missing() []string {
	var missing []string
	for _, w := range o.watches {
		if !w.Synced() {
			missing = append(missing, w.Name())
		}
	}
	return missing
}

// Networks are the custom networks. They, as all that is listed here, are shared and must not be changed.
func (o *overview) Networks() []*v1.CustomNetwork { return o.networks.All() }

// Pools are the pools of addresses.
func (o *overview) Pools() []*v1.IPPool { return o.pools.All() }

// Blocks are the blocks of all nodes.
func (o *overview) Blocks() []*v1.IPBlock { return o.blocks.All() }

// Nodes are what all nodes say of themselves.
func (o *overview) Nodes() []*v1.NodeNetwork { return o.nodes.All() }

// Externals are the interfaces to the outside.
func (o *overview) Externals() []*v1.ExternalInterface { return o.externals.All() }
