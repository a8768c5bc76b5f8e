package policies

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/weftnet/weft/k8s/api/adminpolicy"
	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/policy"
)

// Each agent has the policies of all namespaces. Little remains of a large one, also where the informer lightens it
// again.
func TestRulesOfLargePoliciesAreNotKept(t *testing.T) {
	const parts = policy.MaxParts + 1
	meta := metav1.ObjectMeta{
		Namespace:   "a",
		Name:        "p",
		Annotations: map[string]string{policy.AnnotationFor: strings.Repeat("red,", parts)},
	}
	spec := networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, parts)}
	admin := adminv1.AdminNetworkPolicySpec{Egress: make([]adminv1.AdminNetworkPolicyEgressRule, parts)}
	baseline := adminv1.BaselineAdminNetworkPolicySpec{
		Egress: make([]adminv1.BaselineAdminNetworkPolicyEgressRule, parts),
	}
	network := lightenNetworkPolicy(&networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: spec})
	multi := lightenMulti(&npwg.MultiNetworkPolicy{ObjectMeta: meta, Spec: spec, Unreadable: []string{"ingress"}})
	ofAdmin := lightenAdmin(&adminpolicy.AdminNetworkPolicy{ObjectMeta: meta, Spec: admin})
	ofBaseline := lightenBaseline(&adminpolicy.BaselineAdminNetworkPolicy{ObjectMeta: meta, Spec: baseline})
	for _, o := range []struct{ once, again metav1.Object }{
		{network, lightenNetworkPolicy(network)}, {multi, lightenMulti(multi)}, {ofAdmin, lightenAdmin(ofAdmin)}, {
			ofBaseline, lightenBaseline(ofBaseline),
		},
	} {
		raw, err := json.Marshal(o.once)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > 1000 {
			t.Errorf("%T: %d bytes are kept", o.once, len(raw))
		}
		if !reflect.DeepEqual(o.once, o.again) {
			t.Errorf("%T: lightened again it is %+v", o.once, o.again)
		}
		if over := oversizeOf(o.once); over.Limit != policy.MaxParts || over.Size < parts {
			t.Errorf("%T: over is %+v", o.once, over)
		}
	}
	if _, isOfAll := multi.Annotations[annotationAllNetworks]; !isOfAll || len(multi.Unreadable) != 1 {
		t.Errorf("a MultiNetworkPolicy with too many networks is %+v", multi)
	}
}

// A user who could write these annotations would have rules left out, or keep rules of any size.
func TestUsersCannotWriteTheAnnotationsOfLargePolicies(t *testing.T) {
	for _, name := range []string{annotationOversize, annotationAllNetworks} {
		annotations := map[string]string{name: "{}"}
		if errs := validation.ValidateAnnotations(annotations, field.NewPath("annotations")); len(errs) == 0 {
			t.Errorf("the API server accepts %q", name)
		}
	}
}
