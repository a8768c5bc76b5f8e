package policies

import (
	"encoding/json"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/weftnet/weft/k8s/api/adminpolicy"
	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/policy"
)

// Each agent has the policies of all namespaces in memory, and converts them while ADDs wait. Of a policy that exceeds
// a bound only its selection and isolation are kept: it allows no connection. If it is a large one among the policies
// of its namespace, the informer has its rules, but the engine has not.

// Annotations of policies in memory. Users cannot write them: the API server refuses the names.
const (
	annotationOversize = "oversize policy" // JSON of the bound that the policy exceeds
	// a MultiNetworkPolicy is about all networks, because the user's list is too long
	annotationAllNetworks = "all networks"
)

// setOversize notes why an object has no rules.
func setOversize(o metav1.Object, over policy.Oversize) {
	raw, err := json.Marshal(over)
	if err != nil {
		raw = []byte(err.Error()) // is an oversize policy, too
	}
	kept := o.GetAnnotations()
	if kept == nil {
		kept = make(map[string]string)
	}
	kept[annotationOversize] = string(raw)
	o.SetAnnotations(kept)
}

// oversizeOf returns why an object has no rules.
func oversizeOf(o metav1.Object) (over policy.Oversize) {
	text, is := o.GetAnnotations()[annotationOversize]
	if !is {
		return policy.Oversize{}
	}
	if err := json.Unmarshal([]byte(text), &over); err != nil || over.IsZero() {
		return policy.Oversize{Unit: text} // fails closed
	}
	return over
}

// isLight reports whether an object has no rules because of its size.
func isLight(o metav1.Object) bool { return !oversizeOf(o).IsZero() }

func withoutNetworkRules(o *networkingv1.NetworkPolicy, over policy.Oversize) *networkingv1.NetworkPolicy {
	is := &networkingv1.NetworkPolicy{ObjectMeta: lightMeta(&o.ObjectMeta), Spec: policy.WithoutRules(&o.Spec)}
	setOversize(is, over)
	return is
}

func withoutMultiRules(o *npwg.MultiNetworkPolicy, over policy.Oversize) *npwg.MultiNetworkPolicy {
	is := &npwg.MultiNetworkPolicy{
		ObjectMeta: lightMeta(&o.ObjectMeta),
		Spec:       policy.WithoutRules(&o.Spec),
		Unreadable: o.Unreadable,
	}
	networks, isKept := policy.KeptNetworks(o.Annotations[policy.AnnotationFor])
	if isKept {
		is.Annotations = map[string]string{policy.AnnotationFor: networks}
	} else {
		is.Annotations = map[string]string{annotationAllNetworks: ""}
	}
	setOversize(is, over)
	return is
}

func withoutAdminRules(o *adminpolicy.AdminNetworkPolicy, over policy.Oversize) *adminpolicy.AdminNetworkPolicy {
	is := &adminpolicy.AdminNetworkPolicy{
		ObjectMeta: lightMeta(&o.ObjectMeta),
		Spec:       policy.AdminWithoutRules(&o.Spec),
		Unreadable: o.Unreadable,
	}
	setOversize(is, over)
	return is
}

func withoutBaselineRules(
	o *adminpolicy.BaselineAdminNetworkPolicy, over policy.Oversize,
) *adminpolicy.BaselineAdminNetworkPolicy {
	is := &adminpolicy.BaselineAdminNetworkPolicy{
		ObjectMeta: lightMeta(&o.ObjectMeta), Spec: policy.BaselineWithoutRules(&o.Spec), Unreadable: o.Unreadable,
	}
	setOversize(is, over)
	return is
}

// These functions drop the metadata of policies that no reader needs, as tenants write up to 256 KiB of annotations
// into each, and the rules of policies that are too large. An informer may call them again with their results.
func lightenNetworkPolicy(o *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	if isLight(o) {
		return o
	}
	size := policy.MeasureNetworkPolicy(&o.Spec, "")
	if over := size.Oversize(); !over.IsZero() {
		return withoutNetworkRules(o, over)
	}
	return &networkingv1.NetworkPolicy{ObjectMeta: lightMeta(&o.ObjectMeta), Spec: o.Spec}
}

func lightenMulti(o *npwg.MultiNetworkPolicy) *npwg.MultiNetworkPolicy {
	if isLight(o) {
		return o
	}
	networks, has := o.Annotations[policy.AnnotationFor]
	size := policy.MeasureNetworkPolicy(&o.Spec, networks)
	if over := size.Oversize(); !over.IsZero() {
		return withoutMultiRules(o, over)
	}
	light := &npwg.MultiNetworkPolicy{ObjectMeta: lightMeta(&o.ObjectMeta), Spec: o.Spec, Unreadable: o.Unreadable}
	if has {
		light.Annotations = map[string]string{policy.AnnotationFor: networks}
	}
	return light
}

func lightenAdmin(o *adminpolicy.AdminNetworkPolicy) *adminpolicy.AdminNetworkPolicy {
	if isLight(o) {
		return o
	}
	size := policy.MeasureAdmin(&o.Spec)
	if over := size.Oversize(); !over.IsZero() {
		return withoutAdminRules(o, over)
	}
	return &adminpolicy.AdminNetworkPolicy{ObjectMeta: lightMeta(&o.ObjectMeta), Spec: o.Spec, Unreadable: o.Unreadable}
}

func lightenBaseline(o *adminpolicy.BaselineAdminNetworkPolicy) *adminpolicy.BaselineAdminNetworkPolicy {
	if isLight(o) {
		return o
	}
	size := policy.MeasureBaseline(&o.Spec)
	if over := size.Oversize(); !over.IsZero() {
		return withoutBaselineRules(o, over)
	}
	return &adminpolicy.BaselineAdminNetworkPolicy{
		ObjectMeta: lightMeta(&o.ObjectMeta),
		Spec:       o.Spec,
		Unreadable: o.Unreadable,
	}
}

func (p *Policies) refreshNetworkPolicy(key string) {
	id := policy.Ref{Kind: policy.Network, Namespace: idOf(key).Namespace, Name: idOf(key).Name}
	o, known := p.networkPolicy.One(key)
	if !known {
		p.drop(id)
		return
	}
	over := p.reserve(id, o, policy.MeasureNetworkPolicy(&o.Spec, ""))
	if !over.IsZero() {
		o = withoutNetworkRules(o, over)
	}
	converted, err := policy.OfNetworkPolicy(o)
	p.putSized(converted, oversizeOf(o), err)
}

func (p *Policies) refreshMulti(key string) {
	id := policy.Ref{Kind: policy.Multi, Namespace: idOf(key).Namespace, Name: idOf(key).Name}
	o, known := p.multi.One(key)
	if !known {
		p.drop(id)
		return
	}
	over := p.reserve(id, o, policy.MeasureNetworkPolicy(&o.Spec, o.Annotations[policy.AnnotationFor]))
	if !over.IsZero() {
		o = withoutMultiRules(o, over)
	}
	converted, err := policy.OfMultiNetworkPolicy(o, &o.Spec)
	if _, isOfAll := o.Annotations[annotationAllNetworks]; isOfAll {
		converted.AllNetworks = true
	}
	p.putSized(converted, oversizeOf(o), because(err, id, o.Unreadable))
}

func (p *Policies) refreshAdmin(name string) {
	id := policy.Ref{Kind: policy.Admin, Name: name}
	o, known := p.admin.One(name)
	if !known {
		p.drop(id)
		return
	}
	over := p.reserve(id, o, policy.MeasureAdmin(&o.Spec))
	if !over.IsZero() {
		o = withoutAdminRules(o, over)
	}
	converted, err := policy.OfAdminNetworkPolicy(&adminv1.AdminNetworkPolicy{ObjectMeta: o.ObjectMeta, Spec: o.Spec})
	p.putSized(converted, oversizeOf(o), because(err, id, o.Unreadable))
}

func (p *Policies) refreshBaseline(name string) {
	id := policy.Ref{Kind: policy.Baseline, Name: name}
	o, known := p.baseline.One(name)
	if !known {
		p.drop(id)
		return
	}
	over := p.reserve(id, o, policy.MeasureBaseline(&o.Spec))
	if !over.IsZero() {
		o = withoutBaselineRules(o, over)
	}
	converted, err := policy.OfBaselineAdminNetworkPolicy(&adminv1.BaselineAdminNetworkPolicy{
		ObjectMeta: o.ObjectMeta,
		Spec:       o.Spec,
	})
	p.putSized(converted, oversizeOf(o), because(err, id, o.Unreadable))
}

// putSized gives a policy to the engine. What replaces the rules of an oversize policy is no fault of its author: the
// engine says why.
func (p *Policies) putSized(o policy.Policy, over policy.Oversize, err error) {
	if !over.IsZero() {
		o.Oversize = over
		err = nil
	}
	p.put(o, err)
}

// reserve counts the parts of a policy. It returns why its rules have to be left out, if they are there and the
// policies of the namespace have no room for them.
func (p *Policies) reserve(id policy.Ref, o metav1.Object, size policy.Measure) policy.Oversize {
	p.refreshPolicies(p.room.set(id, size.Parts))
	if !isLight(o) && p.room.isOver(id) {
		return policy.OversizeInNamespace(size.Parts)
	}
	return policy.Oversize{}
}

// refreshPolicies gives policies to the engine for which there is room now, or is not any more.
func (p *Policies) refreshPolicies(list []policy.Ref) {
	for _, id := range list {
		key := policy.ID{Namespace: id.Namespace, Name: id.Name}.String()
		switch id.Kind {
		case policy.Network:
			p.refreshNetworkPolicy(key)
		case policy.Multi:
			p.refreshMulti(key)
		case policy.Admin:
			p.refreshAdmin(id.Name)
		case policy.Baseline:
			p.refreshBaseline(id.Name)
		}
	}
}

func (p *Policies) drop(id policy.Ref) {
	delete(p.invalid, id)
	p.engine.DeletePolicy(id)
	p.refreshPolicies(p.room.set(id, 0))
}
