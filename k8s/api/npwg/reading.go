package npwg

import (
	"encoding/json"
	"errors"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// UnmarshalJSON decodes any object with valid metadata, so that one definition hides no other one of a list: the definition of the kind may
// accept any spec.
func (in *NetworkAttachmentDefinition) UnmarshalJSON(raw []byte) error {
	var o struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              json.RawMessage `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
		return fmt.Errorf("read NetworkAttachmentDefinition: %w", err)
	}
	*in = NetworkAttachmentDefinition{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta}
	if len(o.Spec) == 0 {
		return nil
	}
	var spec NetworkAttachmentDefinitionSpec
	err := kjson.UnmarshalCaseSensitivePreserveInts(o.Spec, &spec)
	if err == nil {
		in.Spec = spec
	} else {
		in.Unreadable = "spec: " + err.Error()
	}
	return nil
}

// UnmarshalJSON reads a policy of any content: the definition of its kind (CRD) validates little, and a policy that cannot be read must not
// hide the others of a list. A part of the wrong type, or with an unknown field, is replaced by one that is invalid, and is in
// Unreadable.
func (in *MultiNetworkPolicy) UnmarshalJSON(raw []byte) error {
	var o struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              json.RawMessage `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
		return fmt.Errorf("read MultiNetworkPolicy: %w", err)
	}
	*in = MultiNetworkPolicy{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta}
	if len(o.Spec) > 0 {
		in.readSpec(o.Spec)
	}
	return nil
}

// strict reads a part. It fails for unknown fields, too.
func strict(raw json.RawMessage, into any) error {
	unknown, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return err
	}
	return errors.Join(unknown...)
}

// policySpec is a spec whose parts are not read yet.
type policySpec struct {
	PodSelector json.RawMessage `json:"podSelector"`
	PolicyTypes json.RawMessage `json:"policyTypes"`
	Ingress     json.RawMessage `json:"ingress"`
	Egress      json.RawMessage `json:"egress"`
}

func (in *MultiNetworkPolicy) readSpec(raw json.RawMessage) {
	var parts policySpec
	errSpec := strict(raw, &parts)
	errTypes := in.read("policyTypes", parts.PolicyTypes, &in.Spec.PolicyTypes)
	errPods := in.read("podSelector", parts.PodSelector, &in.Spec.PodSelector)
	in.Spec.Ingress = rulesOf(in, "ingress", parts.Ingress, networkingv1.NetworkPolicyIngressRule{From: unreadablePeers})
	in.Spec.Egress = rulesOf(in, "egress", parts.Egress, networkingv1.NetworkPolicyEgressRule{To: unreadablePeers})
	if errSpec != nil {
		in.Unreadable = append(in.Unreadable, "spec: "+errSpec.Error())
	}
	// An unknown field may be one of both.
	if errSpec != nil || errTypes != nil {
		in.Spec.PolicyTypes = append(in.Spec.PolicyTypes, unreadableType)
	}
	if errSpec != nil || errPods != nil {
		in.Spec.PodSelector.MatchExpressions = append(in.Spec.PodSelector.MatchExpressions, unreadableRequirement)
	}
}

const unreadableType networkingv1.PolicyType = "unreadable"

var (
	unreadableRequirement = metav1.LabelSelectorRequirement{Operator: "unreadable"}
	unreadablePeers       = []networkingv1.NetworkPolicyPeer{{}}
)

// read reads a part that may be missing.
func (in *MultiNetworkPolicy) read(name string, raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	err := strict(raw, into)
	if err != nil {
		in.Unreadable = append(in.Unreadable, name+": "+err.Error())
	}
	return err
}

// rulesOf reads a list of rules, each by itself.
func rulesOf[T any](in *MultiNetworkPolicy, name string, raw json.RawMessage, unreadable T) []T {
	var each []json.RawMessage
	if in.read(name, raw, &each) != nil {
		return []T{unreadable}
	}
	var list []T
	for n, one := range each {
		var r T
		if in.read(fmt.Sprintf("%s[%d]", name, n), one, &r) != nil {
			r = unreadable
		}
		list = append(list, r)
	}
	return list
}
