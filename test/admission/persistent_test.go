package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/weftnet/weft/pod"
)

// persistentManifest has the policy for the claims that the controller makes.
const persistentManifest = "../../k8s/manifests/persistent-ips.yaml"

func TestTheControllerMakesOnlyClaimsOfReplicas(t *testing.T) {
	const owner, writes, held = "only IPAMClaims of pods of a StatefulSet that owns them", "may only make IPAMClaims",
		"has no addresses and no finalizers"
	claim := func(name, metadata, status string) request {
		return request{user: controller, operation: create, resource: "ipamclaims", object: object(t, "ipamclaims", name,
			fmt.Sprintf(`{metadata: {namespace: a, %s}, spec: {network: blue, interface: t1}, %s}`, metadata, status))}
	}
	ownedBy := func(version, kind, name string) string {
		return fmt.Sprintf("ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: u}]", version, kind, name)
	}
	set := ownedBy("apps/v1", "StatefulSet", "db")
	good := claim("db-10.t1", set, "")
	s := serve(t, readFile(t, persistentManifest), cluster(t)...)
	for _, a := range []attempt{
		{"of a replica", "", good},
		{"of a replica, without addresses", "", claim("db-0.t1", set, "status: {ips: []}")},
		{"of a user", "", claim("mine", "finalizers: [a.b/c]", "status: {ips: [10.5.0.7]}").with(func(r *request) {
			r.user = "me"
		})},
		{"without an owner", owner, claim("db-0.t1", "labels: {}", "")},
		{"with two owners", owner, claim("db-0.t1", strings.Replace(set, "}]", "}, {apiVersion: apps/v1, kind: StatefulSet, name: db, uid: v}]", 1), "")},
		{"of a Deployment", owner, claim("db-0.t1", ownedBy("apps/v1", "Deployment", "db"), "")},
		{"of another group", owner, claim("db-0.t1", ownedBy("example.com/v1", "StatefulSet", "db"), "")},
		{"of another StatefulSet", owner, claim("db-0.t1", ownedBy("apps/v1", "StatefulSet", "web"), "")},
		{"of another pod", owner, claim("db-x.t1", set, "")},
		{"of no pod", owner, claim("db-.t1", set, "")},
		{"of an ordinal with a zero", owner, claim("db-01.t1", set, "")},
		{"of another interface", owner, claim("db-0.t2", set, "")},
		{"of a short name", owner, claim("db-.1", strings.Replace(set, "name: db", "name: db-.1", 1), "")},
		{"with addresses", held, claim("db-0.t1", set, "status: {ips: [10.5.0.7]}")},
		{"with a finalizer", held, claim("db-0.t1", set+", finalizers: [a.b/c]", "")},
		{"change it", writes, good.with(func(r *request) { r.operation, r.old = update, r.object })},
		{"write its addresses", writes, claim("db-10.t1", set, "status: {ips: [10.5.0.7]}").with(func(r *request) {
			r.operation, r.old, r.sub = update, good.object, "status"
		})},
		{"delete it", writes, good.with(func(r *request) { r.operation, r.old, r.object = remove, r.object, nil })},
	} {
		why := s.ask(t, a.request)
		if !strings.Contains(why, a.message) || a.message == "" && why != "" {
			t.Errorf("%s: %q, want %q", a.name, why, a.message)
		}
	}
}

// recorder records warnings.
type recorder struct{ texts []string }

// AddWarning records a text.
func (r *recorder) AddWarning(_, text string) { r.texts = append(r.texts, text) }

// warnings returns the warnings for a new workload.
func (s *server) warnings(t *testing.T, kind, resource string, workload runtime.Object) string {
	t.Helper()
	r := &recorder{}
	ctx, cancel := context.WithTimeout(warning.WithWarningRecorder(t.Context(), r), time.Minute)
	defer cancel()
	gvk := appsv1.SchemeGroupVersion.WithKind(kind)
	attributes := admission.NewAttributesRecord(workload, nil, gvk, "a", "db", gvk.GroupVersion().WithResource(resource), "",
		admission.Create, nil, false, &user.DefaultInfo{Name: "me"})
	must(t, s.plugin.Validate(ctx, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme)))
	return strings.Join(r.texts, "; ")
}

func TestPersistentIPsAreRefusedForPodsWithoutAStatefulSet(t *testing.T) {
	s := serve(t, readFile(t, podManifest), cluster(t)...)
	yes := true
	replica := func(name, options string, owners ...metav1.OwnerReference) *corev1.Pod {
		p := annotated(withOptions("t1/tap", `{"t1": {`+options+`}}`), 0, 0)
		p.Name = name
		p.OwnerReferences = owners
		return p
	}
	owner := func(version, kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: "u", Controller: &yes}
	}
	const on = `"persistentIPs": true`
	for _, tt := range []struct {
		name, controller string
		pod              *corev1.Pod
	}{
		{"of a StatefulSet", "", replica("db-0", on, owner("apps/v1", "StatefulSet", "db"))},
		{"off", "", replica("web", `"persistentIPs": false`)},
		{"of a ReplicaSet", "ReplicaSet web", replica("web-5d8", on, owner("apps/v1", "ReplicaSet", "web"))},
		{"of another group", "StatefulSet db", replica("db-0", on, owner("example.com/v1", "StatefulSet", "db"))},
		{"of no controller", "no controller", replica("db-0", on)},
		{"of another name", "StatefulSet db", replica("web-0", on, owner("apps/v1", "StatefulSet", "db"))},
	} {
		denials := strings.Join(s.creates(t, tt.pod), "; ")
		want := ""
		if tt.controller != "" {
			want = pod.NotOfStatefulSet(tt.controller).Error()
		}
		if denials != want {
			t.Errorf("%s: %q, want %q", tt.name, denials, want)
		}
	}
	template := corev1.PodTemplateSpec{}
	template.Annotations = withOptions("t1/tap", `{"t1": {"persistentIPs": true}}`)
	meta := metav1.ObjectMeta{Namespace: "a", Name: "db"}
	set := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: template}}
	if got := s.warnings(t, "StatefulSet", "statefulsets", set); got != "" {
		t.Errorf("warnings of a StatefulSet: %q", got)
	}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}}
	want := pod.NotOfStatefulSet("a Deployment").Error()
	if got := s.warnings(t, "Deployment", "deployments", deployment); !strings.HasSuffix(got, want) {
		t.Errorf("warnings of a Deployment: %q, want %q", got, want)
	}
}

// What these say the agent says, too.
func TestPolicyForPodsKnowsPersistentIPs(t *testing.T) {
	s := serve(t, readFile(t, podManifest), cluster(t)...)
	yes := true
	for _, a := range []map[string]string{
		withOptions("t1/tap", `{"t1": {"persistentIPs": 1}}`),
		withOptions("t1/tap", `{"t1": {"persistentIPs" : true,"ipamClaim": "db"}}`),
		withOptions("t.1/tap", `{"t.1": {"persistentIPs":true}}`),
		withOptions("T1/tap", `{"T1": {"persistentIPs":true}}`),
	} {
		p := annotated(a, 0, 0)
		p.Name = "db-0"
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "u", Controller: &yes,
		}}
		denials := s.creates(t, p)
		if errs := agentErrors(p); len(denials) != 1 || len(errs) != 1 || !strings.HasPrefix(errs[0], denials[0]) {
			t.Errorf("%s: the policy says %q, the agent %q", a[pod.AnnotationOptions], denials, errs)
		}
	}
}
