package manifests_test

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/k8s/controller"
	"github.com/weftnet/weft/k8s/nodeview/nodeviewtest"
)

// documents reads the documents of a file, by kind.
func documents(t *testing.T, file string) map[string][][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string][][]byte{}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var meta struct{ Kind string }
		if err := yaml.Unmarshal(document, &meta); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		kinds[meta.Kind] = append(kinds[meta.Kind], document)
	}
	return kinds
}

func TestManifestsAreValid(t *testing.T) {
	into := map[string]func() any{
		"Namespace": func() any { return &corev1.Namespace{} }, "ServiceAccount": func() any {
			return &corev1.ServiceAccount{}
		},
		"ClusterRole": func() any { return &rbac.ClusterRole{} }, "ClusterRoleBinding": func() any {
			return &rbac.ClusterRoleBinding{}
		},
		"Role": func() any { return &rbac.Role{} }, "RoleBinding": func() any { return &rbac.RoleBinding{} },
		"ValidatingAdmissionPolicy":        func() any { return &admission.ValidatingAdmissionPolicy{} },
		"ValidatingAdmissionPolicyBinding": func() any { return &admission.ValidatingAdmissionPolicyBinding{} },
		"DeviceClass":                      func() any { return &resourceapi.DeviceClass{} },
		"MutatingAdmissionPolicy":          func() any { return &admission.MutatingAdmissionPolicy{} },
		"MutatingAdmissionPolicyBinding":   func() any { return &admission.MutatingAdmissionPolicyBinding{} },
	}
	for _, file := range []string{
		"rbac", "admission", "annotate", "taint", "endpoints", "operator", "pods", "memif-limits", "claims",
	} {
		for kind, list := range documents(t, file+".yaml") {
			if into[kind] == nil {
				t.Fatalf("%s: unexpected kind %s", file, kind)
			}
			if err := readAll(list, into[kind]); err != nil {
				t.Errorf("%s: %s: %v", file, kind, err)
			}
		}
	}
}

func readAll(documents [][]byte, into func() any) error {
	var errs []error
	for _, document := range documents {
		errs = append(errs, yaml.UnmarshalStrict(document, into()))
	}
	return errors.Join(errs...)
}

func TestAgentsHaveOnlyTheRightsThatTheyNeed(t *testing.T) {
	var role rbac.ClusterRole
	if err := yaml.Unmarshal(documents(t, "rbac.yaml")["ClusterRole"][0], &role); err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		if all := slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups); slices.Contains(all, "*") ||
			slices.Contains(all, "secrets") {
			t.Errorf("rule %v is too wide", rule)
		}
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list", "watch"}, verb) && !areAgents(rule.Resources) {
				t.Errorf("agents may %s %v", verb, rule.Resources)
			}
		}
	}
}

// TestAgentsMayReadAllThatTheyWatch compares the watches of an agent that knows the cluster with its role.
func TestAgentsMayReadAllThatTheyWatch(t *testing.T) {
	var role rbac.ClusterRole
	if err := yaml.Unmarshal(documents(t, "rbac.yaml")["ClusterRole"][0], &role); err != nil {
		t.Fatal(err)
	}
	l := nodeviewtest.New(t)
	l.Known(nil)
	kinds := map[string]bool{}
	l.Eventually("all kinds are watched", func() bool {
		for _, request := range l.Requests() {
			if kind, is := watchedIn(t, request); is {
				kinds[kind] = true
			}
		}
		return len(kinds) >= watchedKinds
	})
	if len(kinds) != watchedKinds || !kinds["networking.k8s.io/servicecidrs"] {
		t.Errorf("agents watch %v", slices.Sorted(maps.Keys(kinds)))
	}
	for kind := range kinds {
		for _, verb := range []string{"list", "watch"} {
			if !allowsRead(role.Rules, verb, kind) {
				t.Errorf("agents %s %s, and their role does not let them", verb, kind)
			}
		}
	}
}

// watchedKinds is the number of kinds that an agent watches.
const watchedKinds = 12

// watchedIn returns the kind that a request watches, as group/resource; the group of core is "".
func watchedIn(t *testing.T, request string) (kind string, is bool) {
	t.Helper()
	method, target, _ := strings.Cut(request, " ")
	at, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(strings.Trim(at.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" {
		group = parts[1]
	}
	return group + "/" + parts[len(parts)-1], method == http.MethodGet && at.Query().Get("watch") != ""
}

func allowsRead(rules []rbac.PolicyRule, verb, kind string) bool {
	group, resource, _ := strings.Cut(kind, "/")
	return slices.ContainsFunc(rules, func(r rbac.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) &&
			slices.Contains(r.Resources, resource)
	})
}

// TestTheControllerHasOnlyTheRightsThatItNeeds lists the writes that the controller, or an attacker with its token, may
// do.
func TestTheControllerHasOnlyTheRightsThatItNeeds(t *testing.T) {
	rights := documents(t, "rbac.yaml")
	var everywhere rbac.ClusterRole
	var own rbac.Role
	if err := errors.Join(yaml.Unmarshal(rights["ClusterRole"][1], &everywhere),
		yaml.Unmarshal(rights["Role"][0], &own)); err != nil {
		t.Fatal(err)
	}
	if everywhere.Name != "weft-controller" || own.Namespace != "weft-system" {
		t.Fatalf("the roles are %s and %s of %s", everywhere.Name, own.Name, own.Namespace)
	}
	want := []string{
		"update customnetworks/status ippools/status externalinterfaces/status",
		"update customnetworks", "update ipblocks", "delete ipblocks", "create events",
		"update leases weft-controller", "update configmaps weft-vnis", "create leases", "create configmaps",
	}
	if writes := writesOf(slices.Concat(everywhere.Rules, own.Rules)); !slices.Equal(writes, want) {
		t.Errorf("it may %q, want %q", writes, want)
	}
	var optional rbac.ClusterRole
	if err := yaml.Unmarshal(documents(t, "endpoints.yaml")["ClusterRole"][0], &optional); err != nil {
		t.Fatal(err)
	}
	want = []string{"create endpointslices", "update endpointslices", "delete endpointslices"}
	if writes := writesOf(optional.Rules); !slices.Equal(writes, want) {
		t.Errorf("with service endpoints it may %q, want %q", writes, want)
	}
	optional = rbac.ClusterRole{}
	if err := yaml.Unmarshal(documents(t, "persistent-ips.yaml")["ClusterRole"][0], &optional); err != nil {
		t.Fatal(err)
	}
	if writes := writesOf(optional.Rules); !slices.Equal(writes, []string{"create ipamclaims"}) {
		t.Errorf("with persistent addresses it may %q", writes)
	}
}

// writesOf lists the writing verbs of rules with their resources.
func writesOf(rules []rbac.PolicyRule) (writes []string) {
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list", "watch"}, verb) {
				writes = append(writes,
					strings.Join(append([]string{verb}, slices.Concat(rule.Resources, rule.ResourceNames)...), " "))
			}
		}
	}
	return writes
}

func TestTheControllerMayChangeNodesByTheOptionalRightOnly(t *testing.T) {
	var role rbac.ClusterRole
	var policy admission.ValidatingAdmissionPolicy
	given := documents(t, "taint.yaml")
	err := errors.Join(yaml.Unmarshal(given["ClusterRole"][0], &role),
		yaml.Unmarshal(given["ValidatingAdmissionPolicy"][0], &policy))
	if err != nil {
		t.Fatal(err)
	}
	if len(role.Rules) != 1 || !slices.Equal(role.Rules[0].Resources, []string{"nodes"}) ||
		!slices.Equal(role.Rules[0].Verbs, []string{"list", "watch", "patch"}) {
		t.Errorf("it may %+v", role.Rules)
	}
	allowed := policy.Spec.Validations[0].Expression
	if *policy.Spec.FailurePolicy != admission.Fail ||
		!strings.Contains(allowed, "t.key != '"+controller.TaintNotReady+"'") {
		t.Errorf("what it may change of a node is not judged: %s", allowed)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[corev1.NodeSpec]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		// the API server takes that one out
		if name != "externalID" && !strings.Contains(allowed, "object.spec.?"+name) {
			t.Errorf("it may change %s of a node", name)
		}
	}
}

// areAgents reports whether agents write the resources.
func areAgents(resources []string) bool {
	own := []string{
		"ipblocks", "nodenetworks", "podinterfaces", "ipblocks/status", "nodenetworks/status", "events",
		"ipamclaims/status",
	}
	return !slices.ContainsFunc(resources, func(r string) bool { return !slices.Contains(own, r) })
}

// TestEachWritableKindHasAPolicy compares RBAC with the policies: each resource that agents may write has a policy that
// checks the node.
func TestEachWritableKindHasAPolicy(t *testing.T) {
	judged := judgedByNode(t)
	var role rbac.ClusterRole
	if err := yaml.Unmarshal(documents(t, "rbac.yaml")["ClusterRole"][0], &role); err != nil {
		t.Fatal(err)
	}
	operations := map[string]string{"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			unjudged := func(resource string) bool { return !judged[resource+" "+operations[verb]] }
			if i := slices.IndexFunc(rule.Resources, unjudged); operations[verb] != "" && i >= 0 {
				t.Errorf("agents may %s %s, and no policy judges whose they are", verb, rule.Resources[i])
			}
		}
	}
}

// judgedByNode lists what policies check by the node of a token: resource and operation.
func judgedByNode(t *testing.T) map[string]bool {
	t.Helper()
	judged := map[string]bool{}
	for _, document := range documents(t, "admission.yaml")["ValidatingAdmissionPolicy"] {
		var p admission.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal(document, &p); err != nil {
			t.Fatal(err)
		}
		if *p.Spec.FailurePolicy != admission.Fail {
			t.Errorf("policy %s lets pass what it cannot judge", p.Name)
		}
		if !strings.Contains(string(document), "variables.node != ''") {
			continue // it judges something else
		}
		rule := p.Spec.MatchConstraints.ResourceRules[0]
		for _, operation := range rule.Operations {
			for _, resource := range rule.Resources {
				judged[resource+" "+string(operation)] = true
			}
		}
	}
	return judged
}

func TestEachFieldOfTheCRDsIsDescribed(t *testing.T) {
	files, err := filepath.Glob("crds/*.yaml")
	if err != nil || len(files) != 7 {
		t.Fatalf("%d CRDs, error %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd map[string]any
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		version := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
		if len(version["additionalPrinterColumns"].([]any)) < 3 {
			t.Errorf("%s: kubectl get shows hardly anything", file)
		}
		described(t, filepath.Base(file), version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any))
	}
}

func described(t *testing.T, path string, schema map[string]any) {
	if items, is := schema["items"].(map[string]any); is {
		described(t, path+"[]", items)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		p := property.(map[string]any)
		at := path + "." + name
		if text, _ := p["description"].(string); strings.TrimSpace(text) == "" &&
			!strings.HasSuffix(at, ".yaml.metadata") {
			t.Errorf("%s is not described", at)
		}
		described(t, at, p)
	}
}
