package policies

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/networkstatus"
	"github.com/weftnet/weft/policy"
)

// Tenants write policies with up to 256 KiB of annotations, and each agent has the policies of all namespaces.
func TestUnreadMetadataOfPoliciesIsDropped(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	meta := metav1.ObjectMeta{
		Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7", Generation: 3, CreationTimestamp: metav1.Unix(1, 0),
		Annotations:     map[string]string{"long": long, policy.AnnotationFor: "red"},
		Labels:          map[string]string{"long": long},
		Finalizers:      []string{long},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: long}},
		OwnerReferences: []metav1.OwnerReference{{Name: long}},
	}
	spec := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
	}
	want := metav1.ObjectMeta{
		Namespace:         "a",
		Name:              "p",
		UID:               "u",
		ResourceVersion:   "7",
		Generation:        3,
		CreationTimestamp: metav1.Unix(1, 0),
	}
	if got := lightenNetworkPolicy(&networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: spec}); !reflect.DeepEqual(
		got.ObjectMeta, want) || !reflect.DeepEqual(got.Spec, spec) {
		t.Errorf("of a NetworkPolicy remains %+v", got.ObjectMeta)
	}
	want.Annotations = map[string]string{policy.AnnotationFor: "red"}
	multi := lightenMulti(&npwg.MultiNetworkPolicy{ObjectMeta: meta, Spec: spec, Unreadable: []string{"ingress"}})
	if !reflect.DeepEqual(multi.ObjectMeta, want) || !reflect.DeepEqual(multi.Spec, spec) ||
		len(multi.Unreadable) != 1 {
		t.Errorf("of a MultiNetworkPolicy remains %+v", multi.ObjectMeta)
	}
}

// Owners of pods write annotations of up to 256 KiB, and each agent has the pods of all nodes.
func TestUnreadAnnotationsOfPodsAreDropped(t *testing.T) {
	type entry struct {
		Name, Interface string
		IPs             []string
		Mac, DNS        string
	}
	long := strings.Repeat("x", 200<<10)
	var many []entry
	for n := range 1000 {
		many = append(many, entry{
			Name:      "red",
			Interface: fmt.Sprint("r", n),
			IPs:       []string{fmt.Sprintf("10.9.%d.%d", n/250, n%250)},
			Mac:       "02:00:00:00:00:01",
		})
	}
	for _, tt := range []struct {
		what string
		said []entry
		kept int // interfaces
	}{
		{"one", []entry{{Name: "red", Interface: "r1", IPs: []string{"10.9.0.5"}}}, 1},
		{"fields that are not read", []entry{{Name: "red", Interface: "r1", IPs: []string{"10.9.0.5"}, DNS: long}}, 1},
		{"many interfaces", many, announcedLimit},
		{
			"many addresses",
			[]entry{
				{
					Name:      "red",
					Interface: "r1",
					IPs:       slices.Repeat([]string{"fd00:1111:2222:3333:4444:5555:6666:7777"}, 5000),
				},
			},
			1,
		},
		{"no address", []entry{{Name: "red", Interface: "r1", IPs: []string{long}}}, 0},
		{"a long network", []entry{{Name: long, Interface: "r1", IPs: []string{"10.9.0.5"}}}, 0},
		{"a long interface", []entry{{Name: "red", Interface: long, IPs: []string{"10.9.0.5"}}}, 0},
	} {
		text, err := json.Marshal(tt.said)
		if err != nil {
			t.Fatal(err)
		}
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			networkstatus.Annotation: strings.ToLower(string(text)), mirror: long, "other": long,
		}}}
		got := lightenPod(o).Annotations
		size := 0
		for key, value := range got {
			size += len(key) + len(value)
		}
		if size > 8<<10 {
			t.Errorf("%s: %d bytes of annotations are kept", tt.what, size)
		}
		if list := statusesIn(got[networkstatus.Annotation]); len(list) != tt.kept {
			t.Errorf("%s: %d interfaces are kept, want %d", tt.what, len(list), tt.kept)
		}
	}
	own := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mirror: "0123456789abcdef0123456789abcdef"}},
	}
	if got := lightenPod(own).Annotations[mirror]; got != "0123456789abcdef0123456789abcdef" {
		t.Errorf("of the UID of a static pod remains %q", got)
	}
}
