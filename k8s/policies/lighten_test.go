package policies

import (
	"reflect"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/policy"
)

// Tenants write policies with up to 256 KiB of annotations, and each agent has the policies of all namespaces.
func TestUnreadMetadataOfPoliciesIsDropped(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	meta := metav1.ObjectMeta{
		Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7", Generation: 3, CreationTimestamp: metav1.Unix(1, 0),
		Annotations: map[string]string{"long": long, policy.AnnotationFor: "red"}, Labels: map[string]string{"long": long}, Finalizers: []string{long},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: long}}, OwnerReferences: []metav1.OwnerReference{{Name: long}},
	}
	spec := networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}
	want := metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7", Generation: 3, CreationTimestamp: metav1.Unix(1, 0)}
	if got := lightenNetworkPolicy(&networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: spec}); !reflect.DeepEqual(got.ObjectMeta, want) || !reflect.DeepEqual(got.Spec, spec) {
		t.Errorf("of a NetworkPolicy remains %+v", got.ObjectMeta)
	}
	want.Annotations = map[string]string{policy.AnnotationFor: "red"}
	multi := lightenMulti(&npwg.MultiNetworkPolicy{ObjectMeta: meta, Spec: spec, Unreadable: []string{"ingress"}})
	if !reflect.DeepEqual(multi.ObjectMeta, want) || !reflect.DeepEqual(multi.Spec, spec) || len(multi.Unreadable) != 1 {
		t.Errorf("of a MultiNetworkPolicy remains %+v", multi.ObjectMeta)
	}
}
