// Package controller writes the status of the cluster's networks, pools and external interfaces. The replica that holds
// a lease leads.
//
// The API server does not know the leader, and a request of an earlier leader may arrive late. So correctness does not
// depend on the lease: each write has the resource version that was read, and a network owns a VNI once it is in the
// ledger, which is one object:
//
//	ledger (ConfigMap) --read--> fresh list of networks --choose--> ledger, if its version has not changed --> status.vni
//
// Nodes use spec.vni of a network, else status.vni. The controller optionally removes a taint from nodes that serve
// pods: their agents are not authorised to.
package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/endpoints"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/k8s/ipamclaims"
)

// leaseName is the lease of the leader.
const leaseName = "weft-controller"

// Intervals of the status writer.
const (
	pause         = time.Second      // between reconciliations; nodes publish their blocks once a second
	resyncEvery   = 30 * time.Second // without a change
	collectEvery  = 5 * time.Minute
	longestPause  = 30 * time.Second // after errors
	shortestPause = 100 * time.Millisecond
)

// Config configures a [Controller]. Client, Namespace and Identity are required.
type Config struct {
	Client    *client.Client
	Namespace string // of the lease and the ledger
	Identity  string // unique for each replica

	Untaint bool // remove the taint [TaintNotReady] from nodes that serve pods
	// ServiceEndpoints keeps EndpointSlices for Services that request them. It needs additional rights.
	ServiceEndpoints bool
	// PersistentIPs makes the IPAMClaims of StatefulSets' pods with persistent addresses. It needs additional rights.
	PersistentIPs bool
	// ReportPolicies writes an Event on each NetworkPolicy: it is not enforced.
	ReportPolicies bool

	Observer observer     // nil: none
	Metrics  http.Handler // GET /metrics of ServeHealth; nil: none

	Collect time.Duration // interval of the search for leaked blocks and loans; default 5 min
	Grace   time.Duration // minimum age of a leak; default [blocks.DefaultLeakGrace]
	Log     *slog.Logger
}

// Controller is one replica of the controller.
type Controller struct {
	config     Config
	overview   *overview
	reconciler *reconciler
	collection *collection
	election   election
	lastCheck  atomic.Pointer[time.Time] // last check of the lease
}

// New returns a replica. It sends no request before Run.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Namespace == "" || c.Identity == "" {
		return nil, errors.New("controller: Client, Namespace and Identity are required")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = unobserved{}
	}
	c.Collect = cmp.Or(c.Collect, collectEvery)
	w := &Controller{config: c, overview: newOverview(c.Client, c.Untaint, c.Log)}
	w.reconciler = newReconciler(&w.config, w.overview)
	w.collection = newCollection(&w.config, w.overview)
	w.election = election{
		leases: c.Client.Leases(c.Namespace), name: leaseName, me: c.Identity, log: c.Log, checked: w.leaseChecked,
	}
	w.leaseChecked()
	return w, nil
}

// Run watches objects, and reconciles them while this replica leads, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.overview.Run(ctx) })
	group.Go(func() error { return c.election.run(ctx, c.lead) })
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (c *Controller) lead(ctx context.Context) error {
	c.config.Observer.Leads(true)
	defer c.config.Observer.Leads(false)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.reconciler.run(ctx) })
	group.Go(func() error { return c.collection.run(ctx) })
	// The watches of these are for the leader only.
	if c.config.ServiceEndpoints {
		keeper := endpoints.NewKeeper(c.config.Client, c.config.Log)
		keeper.Observe = observation{c.config.Observer}.keptEndpoints
		group.Go(func() error { return keeper.Run(ctx) })
	}
	if c.config.PersistentIPs {
		group.Go(func() error { return ipamclaims.NewMaker(c.config.Client, c.config.Log).Run(ctx) })
	}
	if c.config.ReportPolicies {
		group.Go(func() error { return newPolicyReporter(c.config.Client, c.config.Log).Run(ctx) })
	}
	return group.Wait()
}

// overview has the objects that the controller reads. They are shared and must not be changed.
type overview struct {
	*informer.Group
	changed chan struct{} // holds a token if an object may have changed since the last read

	networks  *informer.Informer[*v1.CustomNetwork]
	pools     *informer.Informer[*v1.IPPool]
	blocks    *informer.Informer[*v1.IPBlock]
	nodes     *informer.Informer[*v1.NodeNetwork]
	externals *informer.Informer[*v1.ExternalInterface]
	machines  *informer.Informer[*corev1.Node] // nil: taints are not removed
}

// newOverview returns an empty overview, with Nodes if taints are removed. It sends no request before Run.
func newOverview(client *client.Client, taints bool, log *slog.Logger) *overview {
	o := &overview{Group: informer.NewGroup(log), changed: make(chan struct{}, 1)}
	notify := func(string) {
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}
	o.networks = informer.Add(o.Group, "custom networks", client.Networks(), informer.Options[*v1.CustomNetwork]{
		Changed: notify,
	})
	o.pools = informer.Add(o.Group, "pools", client.Pools(), informer.Options[*v1.IPPool]{Changed: notify})
	o.blocks = informer.Add(o.Group, "blocks", client.Blocks(), informer.Options[*v1.IPBlock]{Changed: notify})
	o.nodes = informer.Add(o.Group, "node networks", client.NodeNetworks(), informer.Options[*v1.NodeNetwork]{
		Changed: notify,
	})
	o.externals = informer.Add(o.Group, "external interfaces", client.Externals(),
		informer.Options[*v1.ExternalInterface]{Changed: notify})
	if taints {
		o.machines = informer.Add(o.Group, "nodes", client.Nodes(), informer.Options[*corev1.Node]{
			Changed: func(name string) {
				if n, exists := o.machines.One(name); exists && isTainted(n) { // other Nodes change often
					notify(name)
				}
			},
		})
	}
	return o
}
