package ctl_test

import (
	"bytes"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// grants are the rules of the roles for operators, by the name of the role.
func grants(t *testing.T) map[string][]rbac.PolicyRule {
	t.Helper()
	raw, err := os.ReadFile("../k8s/manifests/operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string][]rbac.PolicyRule{}
	for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
		var role rbac.Role // a ClusterRole has the same fields, except for aggregation
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		rules[role.Name] = role.Rules
	}
	return rules
}

// allowed reports whether the roles permit a request, METHOD URL.
func allowed(rules []rbac.PolicyRule, request string) bool {
	method, path, _ := strings.Cut(request, " ")
	to, err := url.Parse(path)
	if err != nil {
		return false
	}
	parts := strings.Split(strings.Trim(to.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" {
		group = parts[1]
		parts = parts[1:]
	}
	parts = parts[2:]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	resource := parts[0]
	verb := map[string]string{
		"GET":    "get",
		"POST":   "create",
		"DELETE": "delete",
		"PUT":    "update",
		"PATCH":  "patch",
	}[method]
	if method == "GET" && len(parts) == 1 {
		verb = "list"
	}
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return slices.ContainsFunc(rules, func(r rbac.PolicyRule) bool {
		return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) &&
			slices.Contains(r.Verbs, verb)
	})
}

func TestRolesPermitEachRequestOfTheCommands(t *testing.T) {
	roles := grants(t)
	operator := slices.Concat(roles["weft-viewer"], roles["weft-operator"])
	a := newAgents(t, states, "n1")
	a.lease(time.Now())
	a.Put("pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "a"},
		Spec:       corev1.PodSpec{NodeName: "n1"},
	})
	for _, line := range []string{"status", "devices", "counters --pod lab/a", "addresses blocks", "addresses check"} {
		a.run(true, strings.Fields(line)...)
	}
	k := newKubelets(t, "n1", "n2")
	k.check(t.Context())
	for _, run := range []struct {
		requests []string
		rules    []rbac.PolicyRule
	}{{a.Requests(), operator}, {k.Requests(), slices.Concat(roles["weft-viewer"], roles["weft-checker"])}} {
		if len(run.requests) < 10 {
			t.Errorf("requests %q", run.requests)
		}
		for _, request := range run.requests {
			if !allowed(run.rules, request) {
				t.Errorf("the roles do not permit %s", request)
			}
		}
	}
}
