package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/retry"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
)

// reconciler writes the status of networks, pools and external interfaces, and removes taints from nodes.
type reconciler struct {
	client      *client.Client
	overview    *overview
	observation observation
	ledger      ledger
	finalizer   finalizer
	taints      taints
	log         *slog.Logger
}

func newReconciler(c *Config, o *overview) *reconciler {
	return &reconciler{
		client:      c.Client,
		overview:    o,
		observation: observation{c.Observer},
		ledger:      ledger{client: c.Client, namespace: c.Namespace, log: c.Log},
		finalizer:   finalizer{client: c.Client, log: c.Log},
		taints:      taints{client: c.Client, overview: o, log: c.Log},
		log:         c.Log,
	}
}

// run reconciles at the start, after each change, and with backoff after an error.
func (r *reconciler) run(ctx context.Context) error {
	pauses := retry.Pauses(shortestPause, longestPause)
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next.C:
		case <-r.overview.changed:
		}
		rest := pause
		again := resyncEvery
		switch err := r.reconcile(ctx); {
		case errors.Is(err, errNotSynced):
			rest = shortestPause
			again = 0
		case err != nil && ctx.Err() == nil:
			rest = pauses.NextBackOff()
			again = 0
			r.log.Warn("status not written, retrying", "after", rest, "err", err)
		default:
			pauses.Reset()
		}
		if err := retry.Pause(ctx, rest); err != nil {
			return err
		}
		next.Reset(again)
	}
}

var errNotSynced = errors.New("the API server has not shown all objects yet")

// reconcile writes each status that differs, and removes taints. It continues after a failed write.
func (r *reconciler) reconcile(ctx context.Context) error {
	if len(r.overview.Missing()) > 0 {
		return errNotSynced
	}
	return errors.Join(
		r.observation.reconciled("CustomNetwork", func() error { return r.reconcileNetworks(ctx) }),
		r.observation.reconciled("IPPool", func() error { return r.reconcilePools(ctx) }),
		r.observation.reconciled("ExternalInterface", func() error { return r.reconcileExternals(ctx) }),
		r.observation.reconciled("Node", func() error { return r.taints.reconcile(ctx) }),
	)
}

func (r *reconciler) reconcileNetworks(ctx context.Context) error {
	networks := r.overview.networks.All()
	nodes := r.overview.nodes.All()
	var errs []error
	for _, n := range networks {
		errs = append(errs, r.finalizer.keep(ctx, n, nodes))
	}
	for _, n := range networks {
		if n.Spec.VNI == nil && n.Status.VNI == 0 {
			errs = append(errs, r.ledger.assignMissing(ctx))
			break
		}
	}
	assigned := 0
	for _, n := range networks {
		if n.Spec.VNI == nil && n.Status.VNI != 0 {
			assigned++
		}
		set := func(o *v1.CustomNetwork) { o.Status = networkStatus(n, networks, nodes) }
		errs = append(errs, writeStatus(ctx, n, set, r.client.Networks().UpdateStatus))
	}
	r.observation.VNIs(assigned)
	return errors.Join(errs...)
}

func (r *reconciler) reconcilePools(ctx context.Context) error {
	pools := r.overview.pools.All()
	claimed := r.overview.blocks.All()
	var errs []error
	for _, p := range pools {
		set := func(o *v1.IPPool) { o.Status = poolStatus(p, pools, claimed) }
		errs = append(errs, writeStatus(ctx, p, set, r.client.Pools().UpdateStatus))
	}
	return errors.Join(errs...)
}

func (r *reconciler) reconcileExternals(ctx context.Context) error {
	nodes := r.overview.nodes.All()
	var errs []error
	for _, e := range r.overview.externals.All() {
		set := func(o *v1.ExternalInterface) { o.Status = externalStatus(e, nodes) }
		errs = append(errs, writeStatus(ctx, e, set, r.client.Externals().UpdateStatus))
	}
	return errors.Join(errs...)
}

// writeStatus writes the status that set puts into an object, if it differs. A conflict is no error: the watch shows
// the other write, and the next reconciliation decides again.
func writeStatus[T interface {
	metav1.Object
	DeepCopy() T
}](ctx context.Context, o T, set func(T), update func(context.Context, T, metav1.UpdateOptions) (T, error)) error {
	next := o.DeepCopy()
	set(next)
	if equality.Semantic.DeepEqual(o, next) {
		return nil
	}
	_, err := client.Bounded(ctx, update, next, metav1.UpdateOptions{})
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("write the status of %s %s: %w", reflect.TypeFor[T]().Elem().Name(), o.GetName(), err)
}
