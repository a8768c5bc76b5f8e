package admission_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/pod"
)

// limitsManifest is also the source of the chart's policy for limits.
const limitsManifest = "../../k8s/manifests/memif-limits.yaml"

// serveLimits starts the API server's plugin for policies that change objects.
func serveLimits(t testing.TB) *mutating.Plugin {
	t.Helper()
	native := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	text, err := os.ReadFile(limitsManifest)
	must(t, err)
	documents := bytes.Split(text, []byte("\n---\n"))
	var p admissionv1.MutatingAdmissionPolicy
	var b admissionv1.MutatingAdmissionPolicyBinding
	must(t, yaml.UnmarshalStrict(documents[0], &p))
	must(t, yaml.UnmarshalStrict(documents[1], &b))
	must(t, native.Tracker().Add(&p))
	must(t, native.Tracker().Add(&b))
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(native, 0)
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	plugin, err := mutating.NewPlugin(nil)
	must(t, err)
	gates := featuregate.NewFeatureGate()
	must(t,
		gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
			"MutatingAdmissionPolicy": {Default: true, PreRelease: featuregate.Beta},
		}))
	initializer.New(withSchemas{native}, dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), factory, rights{},
		gates, compatibility.DefaultBuildEffectiveVersion(), ctx.Done(), mapper).Initialize(plugin)
	must(t, plugin.ValidateInitialization())
	factory.Start(ctx.Done())
	if !plugin.WaitForReady() {
		t.Fatal("the plugin does not get ready")
	}
	return plugin
}

// withSchemas is a client that has the schemas of Kubernetes' own kinds, as an API server.
type withSchemas struct{ kubernetes.Interface }

func (c withSchemas) Discovery() discovery.DiscoveryInterface {
	return schemas{c.Interface.Discovery()}
}

type schemas struct{ discovery.DiscoveryInterface }

func (schemas) OpenAPIV3() openapi.Client { return openapitest.NewEmbeddedFileClient() }

// limited returns the memifs in the limits of a pod's containers after the policy.
func limited(t testing.TB, plugin *mutating.Plugin, p *corev1.Pod) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	attributes := admission.NewAttributesRecord(p, nil, kind, p.Namespace, p.Name,
		kind.GroupVersion().WithResource("pods"), "", admission.Create, nil, false,
		&user.DefaultInfo{Name: "me"})
	must(t, plugin.Admit(ctx, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme)))
	text := ""
	for _, c := range attributes.GetObject().(*corev1.Pod).Spec.Containers {
		limit, asked := c.Resources.Limits[pod.Resource], c.Resources.Requests[pod.Resource]
		if limit.Cmp(asked) != 0 {
			t.Errorf("container %s has limit %s and request %s", c.Name, &limit, &asked)
		}
		text += fmt.Sprintf("%s=%s ", c.Name, &limit)
	}
	return text
}

func TestMemifLimitsAreSetFromTheAnnotation(t *testing.T) {
	plugin := serveLimits(t)
	for _, tt := range []struct {
		name   string
		pod    *corev1.Pod
		change func(*corev1.Pod)
		want   string
	}{
		{"two memifs", annotated(custom("m1/memif, t1/tap, m2 / memif /blue"), 0, 0), nil, "vnf=2 side=0 "},
		{"no memif", annotated(custom("t1/tap"), 0, 0), nil, "vnf=0 side=0 "},
		{"a memif by name only", annotated(custom("memif/tap"), 0, 0), nil, "vnf=0 side=0 "},
		{
			"a named container",
			annotated(withOptions("m1/memif, m2/memif", `{"m2": {"mtu": 1400, "container": "side"}}`), 0, 0), nil,
			"vnf=1 side=1 ",
		},
		{"limits of a user", annotated(custom("m1/memif, m2/memif"), 0, 1), func(p *corev1.Pod) {
			p.Spec.Containers[1].Resources.Requests = p.Spec.Containers[1].Resources.Limits
		}, "vnf=0 side=1 "},
		{
			"claims", annotated(custom("m1/memif"), 0, 0),
			func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}} }, "vnf=0 side=0 ",
		},
		{
			"the node's network", annotated(custom("m1/memif"), 0, 0),
			func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "vnf=0 side=0 ",
		},
		{"other limits", annotated(custom("m1/memif"), 0, 0), func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("2")}
		}, "vnf=1 side=0 "},
		{
			"escaped options", annotated(withOptions("m1/memif", `{"m\u0031": {"container": "side"}}`), 0, 0), nil,
			"vnf=0 side=0 ",
		},
	} {
		if tt.change != nil {
			tt.change(tt.pod)
		}
		if got := limited(t, plugin, tt.pod); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
