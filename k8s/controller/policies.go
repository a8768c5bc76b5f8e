package controller

import (
	"context"
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

// reasonNotEnforced is the reason of the Event on a NetworkPolicy.
const reasonNotEnforced = "WeftPolicyNotEnforced"

// notEnforced is the message to the author of a NetworkPolicy.
const notEnforced = "not enforced: Weft makes the main interface of the cluster's pods and enforces no NetworkPolicy, so traffic that this policy " +
	"forbids is forwarded. Set kubernetes.enforcePolicies (docs/policy.md), or run Weft in chained mode behind a CNI that enforces it"

// policyReporter writes an Event on each NetworkPolicy, and another one when its spec changes: it is not enforced.
type policyReporter struct {
	client   *client.Client
	log      *slog.Logger
	watches  *informer.Group
	policies *informer.Informer[*metav1.PartialObjectMetadata]
	keys     workqueue.TypedRateLimitingInterface[string]
	limit    flowcontrol.RateLimiter
}

// newPolicyReporter returns a reporter for one Run. It sends no request before Run.
func newPolicyReporter(client *client.Client, log *slog.Logger) *policyReporter {
	r := &policyReporter{client: client, log: log, watches: informer.NewGroup(log), limit: events.NewLimit()}
	r.keys = informer.NewQueue[string](time.Second, 5*time.Minute)
	r.policies = informer.Add(r.watches, "network policies", client.NetworkPolicies(),
		informer.Options[*metav1.PartialObjectMetadata]{
			Lighten: lightenPolicy, Same: samePolicy, Changed: func(key string) { r.keys.Add(key) },
		})
	return r
}

// lightenPolicy keeps the identity of a NetworkPolicy.
func lightenPolicy(p *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	light := &metav1.PartialObjectMetadata{}
	light.Namespace = p.Namespace
	light.Name = p.Name
	light.UID = p.UID
	light.Generation = p.Generation
	light.ResourceVersion = p.ResourceVersion
	return light
}

// samePolicy reports whether two versions of a NetworkPolicy have the same spec.
func samePolicy(x, y *metav1.PartialObjectMetadata) bool {
	return x.UID == y.UID && x.Generation == y.Generation
}

// Run writes Events until ctx ends.
func (r *policyReporter) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.watches.Run(ctx) })
	group.Go(func() error { return informer.Work(ctx, r.keys, r.handle) })
	return group.Wait()
}

func (r *policyReporter) handle(ctx context.Context, key string) error {
	err := r.report(ctx, key)
	switch {
	case err == nil:
	case events.IsFinal(err):
		r.log.Warn("event not written", "policy", key, "err", err)
		return nil
	default:
		r.log.Debug("event not written, retrying", "policy", key, "err", err)
	}
	return err
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
			APIVersion: networkingv1.SchemeGroupVersion.String(),
			Kind:       "NetworkPolicy",
			Namespace:  p.Namespace,
			Name:       p.Name,
			UID:        p.UID,
		},
		Reason: reasonNotEnforced, Cause: strconv.FormatInt(p.Generation, 10), Message: notEnforced,
	})
}
