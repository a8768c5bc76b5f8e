package admission_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/weftnet/weft/k8s/networkstatus"
)

// statusManifest protects the annotation by which policies know the addresses of other nodes' pods.
const statusManifest = "../../k8s/manifests/network-status.yaml"

// said is a pod with a network-status; "": it has none.
func said(status string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", Annotations: map[string]string{"other": "text"}},
	}
	if status != "" {
		p.Annotations[networkstatus.Annotation] = status
	}
	return p
}

// writesPod reports whether the policies admit a request with a pod.
func (s *server) writesPod(t testing.TB, who, sub string, operation admission.Operation, now, before *corev1.Pod) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var object, old runtime.Object
	if now != nil {
		object = now
	}
	if before != nil {
		old = before
	}
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	attributes := admission.NewAttributesRecord(object, old, kind, "a", "p", kind.GroupVersion().WithResource("pods"),
		sub, operation, nil, false,
		&user.DefaultInfo{Name: who})
	err := s.plugin.Validate(ctx, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	if err != nil && !strings.Contains(err.Error(), "users with the right to update pods/status") {
		t.Fatalf("the API server fails: %v", err)
	}
	return err == nil
}

// What the owner of a pod writes is no evidence for other namespaces, so the owner does not change what the agent
// wrote.
func TestOnlyWritersChangeTheNetworkStatusOfAPod(t *testing.T) {
	const honest, forged = `[{"name": "red", "interface": "r1", "ips": ["10.9.0.66"]}]`, `[{"name": "red", "interface": "r1", "ips": ["10.9.0.50"]}]`
	s := serve(t, readFile(t, statusManifest), cluster(t)...)
	for name, tt := range map[string]struct {
		operation   admission.Operation
		before, now *corev1.Pod
		ownerMay    bool
	}{
		"change":                   {admission.Update, said(honest), said(forged), false},
		"add":                      {admission.Update, said(""), said(forged), false},
		"add to no annotations":    {admission.Update, &corev1.Pod{}, said(forged), false},
		"keep":                     {admission.Update, said(honest), said(honest), true},
		"remove":                   {admission.Update, said(honest), said(""), true},
		"remove all annotations":   {admission.Update, said(honest), &corev1.Pod{}, true},
		"no annotations":           {admission.Update, &corev1.Pod{}, &corev1.Pod{}, true},
		"create a copy of a pod":   {admission.Create, nil, said(honest), true},
		"delete a pod that has it": {admission.Delete, said(honest), nil, true},
	} {
		for _, sub := range []string{"", "status"} {
			for who, may := range map[string]bool{
				"owner": tt.ownerMay, "system:node:n1": tt.ownerMay, "system:serviceaccount:a:weft-agent": tt.ownerMay,
				agent: true, statusWriter: true,
			} {
				if did := s.writesPod(t, who, sub, tt.operation, tt.now, tt.before); did != may {
					t.Errorf("%s by %s, subresource %q: admitted %t", name, who, sub, did)
				}
			}
		}
	}
}
