package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/k8s/informer"
)

// reasonNotEnforced is the reason of the event of a NetworkPolicy.
const reasonNotEnforced = "WeftPolicyNotEnforced"

// notEnforced is for the author of a NetworkPolicy.
const notEnforced = "not enforced: Weft makes the main interface of the cluster's pods and enforces no NetworkPolicy, so traffic that this policy " +
	"forbids is forwarded. Run Weft in chained mode behind a CNI that enforces it (docs/networking.md)"

// Pauses between the tries of an event that the API server did not take.
const (
	policyRetry    = time.Second
	policyRetryMax = 5 * time.Minute
)

// policyReporter writes one event on each NetworkPolicy, and one more when its spec changes: Weft enforces none. It reads their metadata.
type policyReporter struct {
	client   *client.Client
	log      *slog.Logger
	policies *informer.Informer[*metav1.PartialObjectMetadata]
	keys     workqueue.TypedRateLimitingInterface[string]
	limit    flowcontrol.RateLimiter
}

// newPolicyReporter makes a reporter, which runs once. Nothing is sent before Run.
func newPolicyReporter(client *client.Client, log *slog.Logger) (*policyReporter, error) {
	r := &policyReporter{client: client, log: log, limit: flowcontrol.NewTokenBucketRateLimiter(events.Rate, events.Burst)}
	r.keys = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](policyRetry, policyRetryMax))
	var err error
	r.policies, err = informer.New[*metav1.PartialObjectMetadata]("network policies", client.NetworkPolicies(),
		informer.Options{Lighten: lightenPolicy, Same: samePolicy}, func(key string) { r.keys.Add(key) })
	if err == nil {
		err = r.policies.LogErrors(log)
	}
	if err != nil {
		r.keys.ShutDown()
		return nil, fmt.Errorf("controller: watch network policies: %w", err)
	}
	return r, nil
}

// lightenPolicy keeps what tells a NetworkPolicy from all others.
func lightenPolicy(o any) (any, error) {
	p, is := o.(*metav1.PartialObjectMetadata)
	if !is {
		return o, nil // a tombstone
	}
	light := &metav1.PartialObjectMetadata{}
	light.Namespace, light.Name, light.UID = p.Namespace, p.Name, p.UID
	light.Generation, light.ResourceVersion = p.Generation, p.ResourceVersion
	return light, nil
}

// samePolicy reports whether two versions of a NetworkPolicy have the same spec.
func samePolicy(x, y any) bool {
	before, is := x.(*metav1.PartialObjectMetadata)
	after, are := y.(*metav1.PartialObjectMetadata)
	return is && are && before.UID == after.UID && before.Generation == after.Generation
}

// Run writes events until ctx ends.
func (r *policyReporter) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(informer.Quiet(ctx, r.log))
	stop := context.AfterFunc(ctx, r.keys.ShutDown)
	defer stop()
	group.Go(func() error {
		r.policies.Run(ctx)
		return ctx.Err()
	})
	group.Go(func() error {
		for r.next(ctx) {
			continue
		}
		return ctx.Err()
	})
	return group.Wait()
}

func (r *policyReporter) next(ctx context.Context) bool {
	key, over := r.keys.Get()
	if over {
		return false
	}
	defer r.keys.Done(key)
	if err := r.report(ctx, key); err != nil && !events.IsFinal(err) {
		r.log.Debug("event not written, trying again", "policy", key, "err", err)
		r.keys.AddRateLimited(key)
		return true
	} else if err != nil {
		r.log.Warn("event not written", "policy", key, "err", err)
	}
	r.keys.Forget(key)
	return true
}

func (r *policyReporter) report(ctx context.Context, key string) error {
	if err := r.limit.Wait(ctx); err != nil {
		return err
	}
	p, exists := r.policies.One(key)
	if !exists {
		return nil
	}
	return events.Advise(ctx, r.client, events.Advice{
		Object: corev1.ObjectReference{
			APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		},
		Reason: reasonNotEnforced, Cause: strconv.FormatInt(p.Generation, 10), Message: notEnforced,
	})
}
