package policies

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/weftnet/weft/k8s/api/adminpolicy"
	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/policy"
)

// policyFeed gives the engine the policies of all kinds, as far as they are valid and have room in memory.
type policyFeed struct {
	kinds []kindOfPolicies

	engine  *policy.Engine
	invalid map[policy.Ref]string // the errors of a policy, as logged
	room    *room
	log     *slog.Logger
}

// kindOfPolicies is a policiesOf with objects of any type.
type kindOfPolicies interface {
	is(policy.Kind) bool
	refresh(key string)
	refreshAll(locking)
}

// newPolicyFeed adds the informers. MultiNetworkPolicies and AdminNetworkPolicies are not installed everywhere.
func newPolicyFeed(s *shared) *policyFeed {
	f := &policyFeed{
		engine:  s.engine,
		invalid: make(map[policy.Ref]string),
		room:    newRoom(policy.MaxNamespaceParts),
		log:     s.config.Log,
	}
	network := &policiesOf[*networkingv1.NetworkPolicy]{
		feed: f, kind: policy.Network, measure: measureNetwork, withoutRules: withoutNetworkRules,
		convert: policy.OfNetworkPolicy,
	}
	multi := &policiesOf[*npwg.MultiNetworkPolicy]{
		feed: f, kind: policy.Multi, measure: measureMulti, withoutRules: withoutMultiRules, convert: ofMulti,
	}
	admin := &policiesOf[*adminpolicy.AdminNetworkPolicy]{
		feed: f, kind: policy.Admin, measure: measureAdmin, withoutRules: withoutAdminRules, convert: ofAdmin,
	}
	baseline := &policiesOf[*adminpolicy.BaselineAdminNetworkPolicy]{
		feed: f, kind: policy.Baseline, measure: measureBaseline, withoutRules: withoutBaselineRules,
		convert: ofBaseline,
	}
	g := s.watches
	c := s.config.Client
	network.watch = informer.Add(g, "network policies", c.FullNetworkPolicies(),
		informer.Options[*networkingv1.NetworkPolicy]{
			Lighten: lightenNetworkPolicy, Changed: s.on(network.refresh),
		})
	multi.watch = informer.Add(g, "multi network policies", c.MultiNetworkPolicies(),
		informer.Options[*npwg.MultiNetworkPolicy]{
			Optional: true, Lighten: lightenMulti, Changed: s.on(multi.refresh),
		})
	admin.watch = informer.Add(g, "admin network policies", c.AdminNetworkPolicies(),
		informer.Options[*adminpolicy.AdminNetworkPolicy]{
			Optional: true, Lighten: lightenAdmin, Changed: s.on(admin.refresh),
		})
	baseline.watch = informer.Add(g, "baseline admin network policies", c.BaselineAdminNetworkPolicies(),
		informer.Options[*adminpolicy.BaselineAdminNetworkPolicy]{
			Optional: true, Lighten: lightenBaseline, Changed: s.on(baseline.refresh),
		})
	f.kinds = []kindOfPolicies{network, multi, admin, baseline}
	return f
}

// refreshAll gives the engine all policies.
func (f *policyFeed) refreshAll(locked locking) {
	for _, k := range f.kinds {
		k.refreshAll(locked)
	}
}

// policiesOf are the policies of one kind.
type policiesOf[T watched] struct {
	feed         *policyFeed
	kind         policy.Kind
	watch        *informer.Informer[T]
	measure      func(T) policy.Measure
	withoutRules func(T, policy.Oversize) T
	convert      func(T) (policy.Policy, error) // after an error the invalid parts deny
}

func (ps *policiesOf[T]) is(kind policy.Kind) bool { return ps.kind == kind }

func (ps *policiesOf[T]) refreshAll(locked locking) { refreshAll(ps.watch, locked(ps.refresh)) }

// refresh gives the engine the policy of a key.
func (ps *policiesOf[T]) refresh(key string) {
	id := refOf(ps.kind, key)
	o, known := ps.watch.One(key)
	if !known {
		ps.feed.drop(id)
		return
	}
	over := ps.feed.reserve(id, o, ps.measure(o))
	if !over.IsZero() {
		o = ps.withoutRules(o, over)
	}
	converted, err := ps.convert(o)
	ps.feed.putSized(converted, oversizeOf(o), err)
}

// refOf names a policy by its key, "name" or "namespace/name".
func refOf(kind policy.Kind, key string) policy.Ref {
	namespace, name, has := strings.Cut(key, "/")
	if !has {
		return policy.Ref{Kind: kind, Name: key}
	}
	return policy.Ref{Kind: kind, Namespace: namespace, Name: name}
}

// keyOf returns the key of a policy.
func keyOf(id policy.Ref) string {
	if id.Namespace == "" {
		return id.Name
	}
	return id.Namespace + "/" + id.Name
}

func measureNetwork(o *networkingv1.NetworkPolicy) policy.Measure {
	return policy.MeasureNetworkPolicy(&o.Spec, "")
}

func measureMulti(o *npwg.MultiNetworkPolicy) policy.Measure {
	return policy.MeasureNetworkPolicy(&o.Spec, o.Annotations[policy.AnnotationFor])
}

func measureAdmin(o *adminpolicy.AdminNetworkPolicy) policy.Measure {
	return policy.MeasureAdmin(&o.Spec)
}

func measureBaseline(o *adminpolicy.BaselineAdminNetworkPolicy) policy.Measure {
	return policy.MeasureBaseline(&o.Spec)
}

func ofMulti(o *npwg.MultiNetworkPolicy) (policy.Policy, error) {
	converted, err := policy.OfMultiNetworkPolicy(o, &o.Spec)
	if _, isOfAll := o.Annotations[annotationAllNetworks]; isOfAll {
		converted.AllNetworks = true
	}
	return converted, because(err, converted.Ref, o.Unreadable)
}

func ofAdmin(o *adminpolicy.AdminNetworkPolicy) (policy.Policy, error) {
	converted, err := policy.OfAdminNetworkPolicy(&adminv1.AdminNetworkPolicy{ObjectMeta: o.ObjectMeta, Spec: o.Spec})
	return converted, because(err, converted.Ref, o.Unreadable)
}

func ofBaseline(o *adminpolicy.BaselineAdminNetworkPolicy) (policy.Policy, error) {
	converted, err := policy.OfBaselineAdminNetworkPolicy(&adminv1.BaselineAdminNetworkPolicy{
		ObjectMeta: o.ObjectMeta,
		Spec:       o.Spec,
	})
	return converted, because(err, converted.Ref, o.Unreadable)
}

// putSized gives a policy to the engine. What replaces the rules of an oversize policy is no fault of its author: the
// engine says why.
func (f *policyFeed) putSized(o policy.Policy, over policy.Oversize, err error) {
	if !over.IsZero() {
		o.Oversize = over
		err = nil
	}
	f.put(o, err)
}

// reserve counts the parts of a policy. It returns why its rules have to be left out, if they are there and the
// policies of the namespace have no room for them.
func (f *policyFeed) reserve(id policy.Ref, o metav1.Object, size policy.Measure) policy.Oversize {
	f.refreshEach(f.room.set(id, size.Parts))
	if !isLight(o) && f.room.isOver(id) {
		return policy.OversizeInNamespace(size.Parts)
	}
	return policy.Oversize{}
}

// refreshEach gives policies to the engine for which there is room now, or is not any more.
func (f *policyFeed) refreshEach(list []policy.Ref) {
	for _, id := range list {
		for _, k := range f.kinds {
			if k.is(id.Kind) {
				k.refresh(keyOf(id))
			}
		}
	}
}

func (f *policyFeed) drop(id policy.Ref) {
	delete(f.invalid, id)
	f.engine.DeletePolicy(id)
	f.refreshEach(f.room.set(id, 0))
}

// because returns why a policy is invalid. What replaces unreadable parts of a policy is invalid for another reason
// than its author knows.
func because(err error, id policy.Ref, unreadable []string) error {
	if len(unreadable) == 0 {
		return err
	}
	return &policy.InvalidError{Policy: id, Reasons: unreadable}
}

// put gives a policy to the engine. What is invalid about it denies.
func (f *policyFeed) put(o policy.Policy, err error) {
	f.engine.SetPolicy(o)
	if err == nil {
		delete(f.invalid, o.Ref)
		return
	}
	if f.invalid[o.Ref] != err.Error() {
		f.invalid[o.Ref] = err.Error()
		f.log.Error("policy has invalid parts, which deny connections", "err", err)
	}
}

// reasons lists the invalid parts of policies, one line for each policy.
func (f *policyFeed) reasons() []string { return slices.Sorted(maps.Values(f.invalid)) }
