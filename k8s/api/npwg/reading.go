package npwg

import (
	"encoding/json"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/weftnet/weft/internal/jsonerror"
	"github.com/weftnet/weft/k8s/api/partial"
)

// UnmarshalJSON decodes any object with valid metadata, so that one definition hides no other one of a list: the
// definition of the kind may accept any spec.
func (in *NetworkAttachmentDefinition) UnmarshalJSON(raw []byte) error {
	o, err := partial.ReadObject(raw, "NetworkAttachmentDefinition")
	if err != nil {
		return err
	}
	*in = NetworkAttachmentDefinition{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta}
	if len(o.Spec) == 0 {
		return nil
	}
	var spec NetworkAttachmentDefinitionSpec
	err = kjson.UnmarshalCaseSensitivePreserveInts(o.Spec, &spec)
	if err == nil {
		in.Spec = spec
	} else {
		in.Unreadable = "spec: " + jsonerror.Plain(err).Error()
	}
	return nil
}

// UnmarshalJSON reads a policy of any content: the definition of its kind (CRD) validates little, and a policy that
// cannot be read must not hide the others of a list. A part of the wrong type, or with an unknown field, is replaced by
// one that is invalid, and is in Unreadable.
func (in *MultiNetworkPolicy) UnmarshalJSON(raw []byte) error {
	o, err := partial.ReadObject(raw, "MultiNetworkPolicy")
	if err != nil {
		return err
	}
	*in = MultiNetworkPolicy{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta}
	if len(o.Spec) > 0 {
		in.readSpec(o.Spec)
	}
	return nil
}

// policySpec is a spec whose parts are not read yet.
type policySpec struct {
	PodSelector json.RawMessage `json:"podSelector"`
	PolicyTypes json.RawMessage `json:"policyTypes"`
	Ingress     json.RawMessage `json:"ingress"`
	Egress      json.RawMessage `json:"egress"`
}

func (in *MultiNetworkPolicy) readSpec(raw json.RawMessage) {
	var r partial.Reader
	var parts policySpec
	errSpec := r.Read("spec", raw, &parts)
	errTypes := r.Read("policyTypes", parts.PolicyTypes, &in.Spec.PolicyTypes)
	errPods := r.Read("podSelector", parts.PodSelector, &in.Spec.PodSelector)
	in.Spec.Ingress = partial.Each(&r, "ingress", parts.Ingress, unreadableIngress)
	in.Spec.Egress = partial.Each(&r, "egress", parts.Egress, unreadableEgress)
	in.Unreadable = r.Unreadable
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

func unreadableIngress(json.RawMessage) networkingv1.NetworkPolicyIngressRule {
	return networkingv1.NetworkPolicyIngressRule{From: unreadablePeers}
}

func unreadableEgress(json.RawMessage) networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{To: unreadablePeers}
}

// UnmarshalJSON reads a claim of any content: the definition of its kind (CRD) may be of another version.
func (in *IPAMClaim) UnmarshalJSON(raw []byte) error {
	o, err := partial.ReadObject(raw, "IPAMClaim")
	if err != nil {
		return err
	}
	*in = IPAMClaim{TypeMeta: o.TypeMeta, ObjectMeta: o.ObjectMeta}
	in.Spec = readPart[IPAMClaimSpec](in, "spec", o.Spec)
	in.Status = readPart[IPAMClaimStatus](in, "status", o.Status)
	return nil
}

// readPart returns a part of a claim, which is empty if it cannot be read.
func readPart[T any](in *IPAMClaim, name string, raw json.RawMessage) (part T) {
	if len(raw) == 0 {
		return part
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &part); err != nil {
		in.Unreadable = append(in.Unreadable, name+": "+jsonerror.Plain(err).Error())
		return *new(T)
	}
	return part
}
