package adminpolicy

import (
	"encoding/json"
	"slices"

	kjson "sigs.k8s.io/json"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/weftnet/weft/k8s/api/partial"
)

// A policy that cannot be read must not hide the others of a list. Its definition (CRD) may be of another version than
// the Go types, which do not know all its fields then, and it accepts values that Go cannot decode, such as times of
// conditions with a lower-case t. The status is not read at all. A part of the spec of the wrong type, or with an
// unknown field, is replaced by one that is invalid, and is in Unreadable: package policy says what an invalid part
// means. An unknown field of the spec itself may be a rule of either direction, before all others.

// unreadablePriority is none of the valid priorities, 0 to 1000.
const unreadablePriority = -1

// policySpec is a spec whose parts are not read yet.
type policySpec struct {
	Subject json.RawMessage `json:"subject"`
	Ingress json.RawMessage `json:"ingress"`
	Egress  json.RawMessage `json:"egress"`
}

// adminSpec is the spec of an AdminNetworkPolicy whose parts are not read yet.
type adminSpec struct {
	policySpec `json:",inline"`

	Priority json.RawMessage `json:"priority"`
}

// UnmarshalJSON reads a policy of any spec.
func (in *AdminNetworkPolicy) UnmarshalJSON(raw []byte) error {
	o, err := partial.ReadObject(raw, "AdminNetworkPolicy")
	if err != nil {
		return err
	}
	var r partial.Reader
	var parts adminSpec
	errSpec := r.Read("spec", o.Spec, &parts)
	spec := adminv1.AdminNetworkPolicySpec{Subject: subjectOf(&r, parts.Subject)}
	if r.Read("priority", parts.Priority, &spec.Priority) != nil {
		spec.Priority = unreadablePriority
	}
	spec.Ingress = partial.Each(&r, "ingress", parts.Ingress, adminIngress)
	spec.Egress = partial.Each(&r, "egress", parts.Egress, adminEgress)
	if errSpec != nil {
		spec.Ingress = slices.Insert(spec.Ingress, 0, adminIngress(nil))
		spec.Egress = slices.Insert(spec.Egress, 0, adminEgress(nil))
	}
	*in = AdminNetworkPolicy{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta, Spec: spec, Unreadable: r.Unreadable}
	return nil
}

// UnmarshalJSON reads a policy of any spec.
func (in *BaselineAdminNetworkPolicy) UnmarshalJSON(raw []byte) error {
	o, err := partial.ReadObject(raw, "BaselineAdminNetworkPolicy")
	if err != nil {
		return err
	}
	var r partial.Reader
	var parts policySpec
	errSpec := r.Read("spec", o.Spec, &parts)
	spec := adminv1.BaselineAdminNetworkPolicySpec{Subject: subjectOf(&r, parts.Subject)}
	spec.Ingress = partial.Each(&r, "ingress", parts.Ingress, baselineIngress)
	spec.Egress = partial.Each(&r, "egress", parts.Egress, baselineEgress)
	if errSpec != nil {
		spec.Ingress = slices.Insert(spec.Ingress, 0, baselineIngress(nil))
		spec.Egress = slices.Insert(spec.Egress, 0, baselineEgress(nil))
	}
	*in = BaselineAdminNetworkPolicy{
		TypeMeta:   o.TypeMeta,
		ObjectMeta: o.ObjectMeta,
		Spec:       spec,
		Unreadable: r.Unreadable,
	}
	return nil
}

// subjectOf reads a subject. An unreadable one selects nothing, which is invalid.
func subjectOf(r *partial.Reader, raw json.RawMessage) adminv1.AdminNetworkPolicySubject {
	var subject adminv1.AdminNetworkPolicySubject
	if r.Read("subject", raw, &subject) != nil {
		return adminv1.AdminNetworkPolicySubject{}
	}
	return subject
}

// actionOf returns the action of a rule that cannot be read; "" if that is unreadable, too. Without peers the rule is
// invalid.
func actionOf(raw json.RawMessage) string {
	var rule struct {
		Action string `json:"action"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &rule) != nil {
		return ""
	}
	return rule.Action
}

func adminIngress(raw json.RawMessage) adminv1.AdminNetworkPolicyIngressRule {
	return adminv1.AdminNetworkPolicyIngressRule{Action: adminv1.AdminNetworkPolicyRuleAction(actionOf(raw))}
}

func adminEgress(raw json.RawMessage) adminv1.AdminNetworkPolicyEgressRule {
	return adminv1.AdminNetworkPolicyEgressRule{Action: adminv1.AdminNetworkPolicyRuleAction(actionOf(raw))}
}

func baselineIngress(raw json.RawMessage) adminv1.BaselineAdminNetworkPolicyIngressRule {
	return adminv1.BaselineAdminNetworkPolicyIngressRule{
		Action: adminv1.BaselineAdminNetworkPolicyRuleAction(actionOf(raw)),
	}
}

func baselineEgress(raw json.RawMessage) adminv1.BaselineAdminNetworkPolicyEgressRule {
	return adminv1.BaselineAdminNetworkPolicyEgressRule{
		Action: adminv1.BaselineAdminNetworkPolicyRuleAction(actionOf(raw)),
	}
}
