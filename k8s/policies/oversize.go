package policies

import (
	"encoding/json"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
