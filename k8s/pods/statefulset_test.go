package pods_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/pods"
)

func TestOnlyPodsOfStatefulSetsKeepTheirNames(t *testing.T) {
	const refusal = "persistentIPs: only pods of a StatefulSet keep their names, and this one belongs to "
	owner := func(version, kind, name string) []metav1.OwnerReference {
		yes := true
		return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: "u", Controller: &yes}}
	}
	for _, tt := range []struct {
		pod    string
		owners []metav1.OwnerReference
		want   string // controller of a pod that is refused
	}{
		{"db-0", owner("apps/v1", "StatefulSet", "db"), ""},
		{"db-12", owner("apps/v1", "StatefulSet", "db"), ""},
		{"db-0", nil, "no controller"},
		{
			"db-0", []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "u"}},
			"no controller",
		},
		{"web-5d8", owner("apps/v1", "ReplicaSet", "web"), "ReplicaSet web"},
		{"db-0", owner("apps.example.com/v1", "StatefulSet", "db"), "StatefulSet db"},
		// a user can set owners
		{"db-x", owner("apps/v1", "StatefulSet", "db"), "StatefulSet db"},
		{"db-01", owner("apps/v1", "StatefulSet", "db"), "StatefulSet db"},
		{"db-+1", owner("apps/v1", "StatefulSet", "db"), "StatefulSet db"},
		{"other-0", owner("apps/v1", "StatefulSet", "db"), "StatefulSet db"},
		{"db", owner("apps/v1", "StatefulSet", "db"), "StatefulSet db"},
	} {
		set, err := pods.SetOf(&metav1.ObjectMeta{Name: tt.pod, OwnerReferences: tt.owners})
		switch {
		case tt.want == "" && (err != nil || set != pods.StatefulSet{Name: "db", UID: "u"}):
			t.Errorf("%s of %v: %+v, %v", tt.pod, tt.owners, set, err)
		case tt.want != "" && (err == nil || err.Error() != refusal+tt.want+"; name an IPAMClaim by the option ipamClaim instead"):
			t.Errorf("%s of %v: %v", tt.pod, tt.owners, err)
		}
	}
}
