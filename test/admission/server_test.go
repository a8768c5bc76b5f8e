package admission_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/compatibility"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/yaml"
)

// manifest is also the source of the chart's policies.
const manifest = "../../k8s/manifests/admission.yaml"

var ours = schema.GroupVersion{Group: "contivpp.io", Version: "v1"}

// kinds maps resources of requests and parameters to kinds.
var kinds = map[string]schema.GroupVersionKind{
	"nodenetworks": ours.WithKind("NodeNetwork"), "ipblocks": ours.WithKind("IPBlock"),
	"podinterfaces": ours.WithKind("PodInterfaces"),
	"ippools":       ours.WithKind("IPPool"), "customnetworks": ours.WithKind("CustomNetwork"),
	"weftconfigs":    ours.WithKind("WeftConfig"),
	"events":         corev1.SchemeGroupVersion.WithKind("Event"),
	"endpointslices": discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
	"resourceslices": resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"),
	"ipamclaims":     {Group: "k8s.cni.cncf.io", Version: "v1alpha1", Kind: "IPAMClaim"},
	"resourceclaims": resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"),
}

// policies are the policies of the manifest, which has the API server's defaults.
type policies struct {
	policies []*admissionv1.ValidatingAdmissionPolicy
	bindings []*admissionv1.ValidatingAdmissionPolicyBinding
}

func read(t testing.TB) policies { return readFile(t, manifest) }

func readFile(t testing.TB, file string) policies {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	var all policies
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var of metav1.TypeMeta
		must(t, yaml.Unmarshal(document, &of))
		switch of.Kind {
		case "ValidatingAdmissionPolicy":
			var p admissionv1.ValidatingAdmissionPolicy
			must(t, yaml.UnmarshalStrict(document, &p))
			all.policies = append(all.policies, &p)
		case "ValidatingAdmissionPolicyBinding":
			var b admissionv1.ValidatingAdmissionPolicyBinding
			must(t, yaml.UnmarshalStrict(document, &b))
			all.bindings = append(all.bindings, &b)
		case "ClusterRole", "ClusterRoleBinding", "DeviceClass":
		default:
			t.Fatalf("%s has a %s", file, of.Kind)
		}
	}
	return all
}

// only returns the policy of a name with its bindings.
func (p policies) only(name string) policies {
	var one policies
	for _, o := range p.policies {
		if o.Name == name {
			one.policies = append(one.policies, o.DeepCopy())
		}
	}
	for _, b := range p.bindings {
		if b.Spec.PolicyName == name {
			one.bindings = append(one.bindings, b)
		}
	}
	return one
}

// server evaluates policies.
type server struct{ plugin *validating.Plugin }

// serve starts the API server's plugin with policies, and with the nodes, pools and networks of the cluster.
func serve(t testing.TB, p policies, parameters ...runtime.Object) *server {
	t.Helper()
	native := fake.NewClientset()
	scheme := runtime.NewScheme()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, ours})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	for resource, kind := range kinds {
		mapper.AddSpecific(kind, kind.GroupVersion().WithResource(resource), kind.GroupVersion().WithResource(resource),
			meta.RESTScopeRoot)
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	dynamic := dynamicfake.NewSimpleDynamicClient(scheme)
	for _, o := range parameters {
		if u, is := o.(*unstructured.Unstructured); is {
			mapping, err := mapper.RESTMapping(u.GroupVersionKind().GroupKind())
			must(t, err)
			must(t, dynamic.Tracker().Create(mapping.Resource, u, ""))
			continue
		}
		must(t, native.Tracker().Add(o))
	}
	for _, o := range p.policies {
		must(t, native.Tracker().Add(o))
	}
	for _, o := range p.bindings {
		must(t, native.Tracker().Add(o))
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(native, 0)
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	plugin, err := validating.NewPlugin(nil)
	must(t, err)
	initializer.New(native, dynamic, factory, rights{}, featuregate.NewFeatureGate(),
		compatibility.DefaultBuildEffectiveVersion(), ctx.Done(), mapper).Initialize(plugin)
	must(t, plugin.ValidateInitialization())
	factory.Start(ctx.Done())
	if !plugin.WaitForReady() {
		t.Fatal("the plugin does not get ready")
	}
	return &server{plugin}
}

// statusWriter is the only user who may update the status of the pod p in namespace a.
const statusWriter = "system:multus:n1"

// rights answers for the one right that an expression of a policy checks. It denies any other.
type rights struct{}

// Authorize implements authorizer.Authorizer.
func (rights) Authorize(_ context.Context, of authorizer.Attributes) (authorizer.Decision, string, error) {
	if of.GetUser().GetName() != statusWriter {
		return authorizer.DecisionNoOpinion, "", nil
	}
	asked := strings.Join(
		[]string{
			of.GetVerb(), of.GetAPIGroup(), of.GetResource(), of.GetSubresource(), of.GetNamespace(), of.GetName(),
		},
		"/")
	if asked == "update//pods/status/a/p" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// request is a request of an agent, or of the controller, to the API server.
type request struct {
	user          string // "" = agent
	node          string // of the token
	operation     admission.Operation
	resource, sub string
	object, old   *unstructured.Unstructured
}

// User names of the service accounts.
const (
	agent      = "system:serviceaccount:weft-system:weft-agent"
	controller = "system:serviceaccount:weft-system:weft-controller"
)

// ask returns the messages of all policies that deny a request; "" if it is admitted.
func (s *server) ask(t testing.TB, r request) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	who := &user.DefaultInfo{Name: cmp.Or(r.user, agent), Extra: map[string][]string{}}
	if r.node != "" {
		who.Extra["authentication.kubernetes.io/node-name"] = []string{r.node}
	}
	var object, old runtime.Object
	named := r.object
	if r.object != nil {
		object = r.object
	}
	if r.old != nil {
		old = r.old
	}
	if named == nil {
		named = r.old
	}
	kind := kinds[r.resource]
	attributes := admission.NewAttributesRecord(object, old, kind, named.GetNamespace(), named.GetName(),
		kind.GroupVersion().WithResource(r.resource), r.sub, r.operation, nil, false, who)
	err := s.plugin.Validate(ctx, attributes, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
	if err == nil {
		return ""
	}
	var denied *apierrors.StatusError
	if !errors.As(err, &denied) || denied.ErrStatus.Details == nil {
		t.Fatalf("the API server fails: %v", err)
	}
	var text string
	for _, c := range denied.ErrStatus.Details.Causes {
		text += c.Message + "\n"
	}
	return text
}

// object parses an object of a resource.
func object(t testing.TB, resource, name, fields string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(fields), &u.Object))
	u.SetGroupVersionKind(kinds[resource])
	u.SetName(name)
	return u
}

// cluster returns the objects of the API server: nodes n1 to n3, a pool of each family and two networks.
func cluster(t testing.TB) []runtime.Object {
	var all []runtime.Object
	for name, addresses := range map[string][]string{
		"n1": {"192.0.2.1"},
		"n2": {"192.0.2.2", "2001:db8::2"},
		"n3": {"192.0.2.3", "2001:DB8::3"},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{
			Type:    corev1.NodeExternalIP,
			Address: "203.0.113.9",
		},
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: name}, corev1.NodeAddress{
				Type:    corev1.NodeInternalIP,
				Address: name,
			})
		all = append(all, n)
	}
	return append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		object(t, "ippools", "pods", `{spec: {cidr: 10.9.0.0/16}}`),
		object(t, "ippools", "six", `{spec: {cidr: "fd00:9::/64", blockSize: 120}}`),
		object(t, "customnetworks", "blue",
			`{spec: {type: L3, cidrs: [10.5.0.0/16, "fd00:5::/64"], blockSize: 28, blockSizeV6: 122}}`),
		object(t, "customnetworks", "bridge", `{spec: {type: L2}}`),
		object(t, "weftconfigs", "default", `{spec: {addresses: {borrowing: true}}}`))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
