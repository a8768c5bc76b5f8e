package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// The API server sets these defaults within atomic fields. If a manifest lacks them, each kubectl apply reports a
// change, tools for GitOps report drift, and Helm conflicts with weftctl although nothing differs.
func TestPoliciesHaveTheDefaultsOfTheAPIServer(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		for kind, list := range documents(t, file) {
			if !strings.Contains(kind, "AdmissionPolicy") {
				continue
			}
			for _, document := range list {
				var p struct {
					Metadata struct{ Name string }
					Spec     struct{ MatchConstraints, MatchResources *admission.MatchResources }
				}
				if err := yaml.Unmarshal(document, &p); err != nil {
					t.Fatal(err)
				}
				for _, m := range []*admission.MatchResources{p.Spec.MatchConstraints, p.Spec.MatchResources} {
					if m == nil {
						continue
					}
					checked++
					if !hasDefaults(m) {
						t.Errorf("%s: %s %s has no matchPolicy, namespaceSelector, objectSelector or scope", file, kind,
							p.Metadata.Name)
					}
				}
			}
		}
	}
	if checked < 18 {
		t.Errorf("checked %d policies and bindings", checked)
	}
}

func hasDefaults(m *admission.MatchResources) bool {
	for _, rule := range m.ResourceRules {
		if rule.Scope == nil || *rule.Scope != admission.AllScopes {
			return false
		}
	}
	return m.MatchPolicy != nil && *m.MatchPolicy == admission.Equivalent && m.NamespaceSelector != nil &&
		m.ObjectSelector != nil
}

func TestReferencesToFieldsHaveTheDefaultOfTheAPIServer(t *testing.T) {
	for _, file := range []string{"weft.yaml", "weft-vpp.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Count(string(text), "fieldRef:")
		complete := strings.Count(string(text), "fieldRef: {apiVersion: v1, ")
		if all == 0 || all != complete {
			t.Errorf("%s: %d of %d references have apiVersion", file, complete, all)
		}
	}
}
