package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/endpoints"
)

// leaseName is the lease of the replica that leads.
const leaseName = "weft-controller"

// The pace of the writer.
const (
	pause         = time.Second      // between two rounds: nodes write their blocks' counts once a second
	resyncEvery   = 30 * time.Second // a round without a change
	collectEvery  = 5 * time.Minute
	longestPause  = 30 * time.Second // after errors
	shortestPause = 100 * time.Millisecond
)

// Config is what a [Controller] is made of. Client, Namespace and Identity are needed.
type Config struct {
	Client    *client.Client
	Namespace string // of the lease and the ledger
	Identity  string // of this replica, unlike those of all others

	Untaint bool // nodes lose the taint [TaintNotReady] once they serve pods
	// ServiceEndpoints is whether slices are kept for Services that ask for them, which needs rights of their own.
	ServiceEndpoints bool
	// ReportPolicies is whether the authors of NetworkPolicies are told that Weft enforces none.
	ReportPolicies bool

	Collect time.Duration // between two looks for what nodes left behind; default 5 min
	Grace   time.Duration // for how long such a thing must have been seen; default [blocks.DefaultLeakGrace]
	Log     *slog.Logger
}

// Controller is one replica of the cluster's writer of status.
type Controller struct {
	client    *client.Client
	namespace string
	collect   time.Duration
	endpoints bool
	policies  bool
	log       *slog.Logger

	overview  *overview
	collector blocks.Collector
	election  election
	beaten    atomic.Pointer[time.Time] // when the lease was looked at last
	leading   atomic.Bool
}

// New makes a replica. Nothing is sent before Run.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Namespace == "" || c.Identity == "" {
		return nil, errors.New("controller: Client, Namespace and Identity are needed")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Collect == 0 {
		c.Collect = collectEvery
	}
	w := &Controller{
		client: c.Client, namespace: c.Namespace, collect: c.Collect, endpoints: c.ServiceEndpoints, policies: c.ReportPolicies,
		log: c.Log, overview: newOverview(c.Client, c.Untaint, c.Log),
	}
	w.collector = blocks.Collector{
		Store: c.Client.BlockStore(), Pools: w.claimedFrom, NodeUID: w.nodeUID, Grace: c.Grace, Now: time.Now, Log: c.Log,
	}
	w.election = election{
		leases: c.Client.Leases(c.Namespace), name: leaseName, me: c.Identity, log: c.Log, beat: w.beat,
	}
	w.beat()
	return w, nil
}

// Run watches, and works while this replica leads, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.overview.Run(ctx) })
	group.Go(func() error { return c.election.run(ctx, c.lead) })
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Leads reports whether this replica leads.
func (c *Controller) Leads() bool { return c.leading.Load() }

func (c *Controller) lead(ctx context.Context) error {
	c.leading.Store(true)
	defer c.leading.Store(false)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.keepStatus(ctx) })
	group.Go(func() error { return c.keepCollecting(ctx) })
	// Only the leader needs the watches of these two.
	if c.endpoints {
		group.Go(func() error { return endpoints.NewKeeper(c.client, c.log).Run(ctx) })
	}
	if c.policies {
		group.Go(func() error { return newPolicyReporter(c.client, c.log).Run(ctx) })
	}
	return group.Wait()
}

// keepStatus does a round at first, whenever something changed, and again after an error.
func (c *Controller) keepStatus(ctx context.Context) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = shortestPause, longestPause
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next.C:
		case <-c.overview.changed:
		}
		rest, again := pause, resyncEvery
		switch err := c.round(ctx); {
		case errors.Is(err, errNotYet):
			rest, again = shortestPause, 0
		case err != nil && ctx.Err() == nil:
			rest, again = max(pauses.NextBackOff(), 0), 0
			c.log.Warn("status not written, trying again", "after", rest, "err", err)
		default:
			pauses.Reset()
		}
		if err := sleep(ctx, rest); err != nil {
			return err
		}
		next.Reset(again)
	}
}

// sleep waits, in vain if ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

var errNotYet = errors.New("the API server has not shown all objects yet")

// round writes every status, and takes off every taint, that is not as it should be. One that cannot be written keeps no other from it.
func (c *Controller) round(ctx context.Context) error {
	if len(c.overview.Missing()) > 0 {
		return errNotYet
	}
	networks, nodes := c.overview.networks.All(), c.overview.nodes.All()
	var errs []error
	for _, n := range networks {
		errs = append(errs, c.keepInUse(ctx, n, nodes))
	}
	for _, n := range networks {
		if n.Spec.VNI == nil && n.Status.VNI == 0 {
			errs = append(errs, c.giveVNIs(ctx))
			break
		}
	}
	for _, n := range networks {
		errs = append(errs, c.writeNetwork(ctx, n, networkStatus(n, networks, nodes)))
	}
	pools, claimed := c.overview.pools.All(), c.overview.blocks.All()
	for _, p := range pools {
		errs = append(errs, c.writePool(ctx, p, poolStatus(p, pools, claimed)))
	}
	for _, e := range c.overview.externals.All() {
		errs = append(errs, c.writeExternal(ctx, e, externalStatus(e, nodes)))
	}
	for _, n := range c.overview.wronglyTainted() {
		errs = append(errs, c.untaint(ctx, n))
	}
	return errors.Join(errs...)
}

// write writes the status of an object. That another write overtook it is no error: the watch shows it, and the next round
// sees.
func write[T metav1.Object](ctx context.Context, kind string, o T, update func(context.Context, T, metav1.UpdateOptions) (T, error)) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	_, err := update(ctx, o, metav1.UpdateOptions{})
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("write the status of %s %s: %w", kind, o.GetName(), err)
}

func (c *Controller) writeNetwork(ctx context.Context, n *v1.CustomNetwork, status v1.CustomNetworkStatus) error {
	if same(n.Status, status) {
		return nil
	}
	n = n.DeepCopy()
	n.Status = status
	return write(ctx, "CustomNetwork", n, c.client.Networks().UpdateStatus)
}

func (c *Controller) writePool(ctx context.Context, p *v1.IPPool, status v1.IPPoolStatus) error {
	if same(p.Status, status) {
		return nil
	}
	p = p.DeepCopy()
	p.Status = status
	return write(ctx, "IPPool", p, c.client.Pools().UpdateStatus)
}

func (c *Controller) writeExternal(ctx context.Context, e *v1.ExternalInterface, status v1.ExternalInterfaceStatus) error {
	if same(e.Status, status) {
		return nil
	}
	e = e.DeepCopy()
	e.Status = status
	return write(ctx, "ExternalInterface", e, c.client.Externals().UpdateStatus)
}

func (c *Controller) untaint(ctx context.Context, n *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	err := untaint(ctx, c.client, n)
	switch {
	case err == nil:
		c.log.Info("node serves pods, its taint is taken off", "node", n.Name, "taint", TaintNotReady)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the watch shows it
	}
	return err
}

// same reports whether a status needs no write.
func same(x, y any) bool { return equality.Semantic.DeepEqual(x, y) }
