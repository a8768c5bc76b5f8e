package policies

import (
	"log/slog"
	"maps"
	"slices"

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
	networkPolicy *informer.Informer[*networkingv1.NetworkPolicy]
	multi         *informer.Informer[*npwg.MultiNetworkPolicy]
	admin         *informer.Informer[*adminpolicy.AdminNetworkPolicy]
	baseline      *informer.Informer[*adminpolicy.BaselineAdminNetworkPolicy]

	engine  *policy.Engine
	invalid map[policy.Ref]string // the errors of a policy, as logged
	room    *room
	log     *slog.Logger
}

// newPolicyFeed adds the informers. MultiNetworkPolicies and AdminNetworkPolicies are not installed everywhere.
func newPolicyFeed(s *shared) *policyFeed {
	f := &policyFeed{
		engine:  s.engine,
		invalid: make(map[policy.Ref]string),
		room:    newRoom(policy.MaxNamespaceParts),
		log:     s.config.Log,
	}
	g := s.watches
	c := s.config.Client
	f.networkPolicy = informer.Add(g, "network policies", c.FullNetworkPolicies(),
		informer.Options[*networkingv1.NetworkPolicy]{
			Lighten: lightenNetworkPolicy, Changed: s.on(f.refreshNetworkPolicy),
		})
	f.multi = informer.Add(g, "multi network policies", c.MultiNetworkPolicies(),
		informer.Options[*npwg.MultiNetworkPolicy]{
			Optional: true, Lighten: lightenMulti, Changed: s.on(f.refreshMulti),
		})
	f.admin = informer.Add(g, "admin network policies", c.AdminNetworkPolicies(),
		informer.Options[*adminpolicy.AdminNetworkPolicy]{
			Optional: true, Lighten: lightenAdmin, Changed: s.on(f.refreshAdmin),
		})
	f.baseline = informer.Add(g, "baseline admin network policies", c.BaselineAdminNetworkPolicies(),
		informer.Options[*adminpolicy.BaselineAdminNetworkPolicy]{
			Optional: true, Lighten: lightenBaseline, Changed: s.on(f.refreshBaseline),
		})
	return f
}

// refreshAll gives the engine all policies.
func (f *policyFeed) refreshAll(locked locking) {
	refreshAll(f.networkPolicy, locked(f.refreshNetworkPolicy))
	refreshAll(f.multi, locked(f.refreshMulti))
	refreshAll(f.admin, locked(f.refreshAdmin))
	refreshAll(f.baseline, locked(f.refreshBaseline))
}

func (f *policyFeed) refreshNetworkPolicy(key string) {
	id := policy.Ref{Kind: policy.Network, Namespace: idOf(key).Namespace, Name: idOf(key).Name}
	o, known := f.networkPolicy.One(key)
	if !known {
		f.drop(id)
		return
	}
	over := f.reserve(id, o, policy.MeasureNetworkPolicy(&o.Spec, ""))
	if !over.IsZero() {
		o = withoutNetworkRules(o, over)
	}
	converted, err := policy.OfNetworkPolicy(o)
	f.putSized(converted, oversizeOf(o), err)
}

func (f *policyFeed) refreshMulti(key string) {
	id := policy.Ref{Kind: policy.Multi, Namespace: idOf(key).Namespace, Name: idOf(key).Name}
	o, known := f.multi.One(key)
	if !known {
		f.drop(id)
		return
	}
	over := f.reserve(id, o, policy.MeasureNetworkPolicy(&o.Spec, o.Annotations[policy.AnnotationFor]))
	if !over.IsZero() {
		o = withoutMultiRules(o, over)
	}
	converted, err := policy.OfMultiNetworkPolicy(o, &o.Spec)
	if _, isOfAll := o.Annotations[annotationAllNetworks]; isOfAll {
		converted.AllNetworks = true
	}
	f.putSized(converted, oversizeOf(o), because(err, id, o.Unreadable))
}

func (f *policyFeed) refreshAdmin(name string) {
	id := policy.Ref{Kind: policy.Admin, Name: name}
	o, known := f.admin.One(name)
	if !known {
		f.drop(id)
		return
	}
	over := f.reserve(id, o, policy.MeasureAdmin(&o.Spec))
	if !over.IsZero() {
		o = withoutAdminRules(o, over)
	}
	converted, err := policy.OfAdminNetworkPolicy(&adminv1.AdminNetworkPolicy{ObjectMeta: o.ObjectMeta, Spec: o.Spec})
	f.putSized(converted, oversizeOf(o), because(err, id, o.Unreadable))
}

func (f *policyFeed) refreshBaseline(name string) {
	id := policy.Ref{Kind: policy.Baseline, Name: name}
	o, known := f.baseline.One(name)
	if !known {
		f.drop(id)
		return
	}
	over := f.reserve(id, o, policy.MeasureBaseline(&o.Spec))
	if !over.IsZero() {
		o = withoutBaselineRules(o, over)
	}
	converted, err := policy.OfBaselineAdminNetworkPolicy(&adminv1.BaselineAdminNetworkPolicy{
		ObjectMeta: o.ObjectMeta,
		Spec:       o.Spec,
	})
	f.putSized(converted, oversizeOf(o), because(err, id, o.Unreadable))
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
		key := policy.ID{Namespace: id.Namespace, Name: id.Name}.String()
		switch id.Kind {
		case policy.Network:
			f.refreshNetworkPolicy(key)
		case policy.Multi:
			f.refreshMulti(key)
		case policy.Admin:
			f.refreshAdmin(id.Name)
		case policy.Baseline:
			f.refreshBaseline(id.Name)
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
