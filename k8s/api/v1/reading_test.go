package v1_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/manifests"
)

// hostile are values that a client may write into any field if the schema of the field accepts them.
var hostile = []string{
	`""`, `"x"`, `"15 minutes"`, `"-1h"`, `"99999999999h"`, `"2026-01-01t00:00:00z"`, `"2026-01-01T00:00:00x1Z"`,
	`"2026-01-01T00:00:00+99:99"`,
	`"2026-13-01T00:00:00Z"`, `-1`, `1e3`, `1.5`, `2147483648`, `9223372036854775807`, `9223372036854775808`,
	`1e19`, `true`, `{}`, `[]`,
}

// The API server returns all objects of a kind in one list. If one of them cannot be decoded, an agent sees none.
func TestNoValueThatTheSchemaAcceptsHidesOtherObjects(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, schema := range schemas(t) {
		list, err := scheme.New(v1.GroupVersion().WithKind(kind + "List"))
		if err != nil {
			t.Fatal(err)
		}
		for path, leaf := range leaves("", schema) {
			validator := validate.NewSchemaValidator(leaf, nil, "", strfmt.Default)
			for _, text := range hostile {
				stored, valid := accepts(t, validator, text)
				if !valid {
					continue
				}
				raw := `{"items":[` + nested(path, stored) + `,{"metadata":{"name":"other"}}]}`
				if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(raw), list); err != nil {
					t.Errorf("%s%s: %s: the list cannot be decoded: %v", kind, path, text, err)
				}
			}
		}
	}
}

func TestUnreadableConditionIsSkipped(t *testing.T) {
	const first = `{"type":"Ready","status":"True","reason":"InUse","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`
	const second = `{"type":"Conflict","status":"True","reason":"X","message":"","lastTransitionTime":"2026-01-01t00:00:00z"}`
	for _, test := range []struct {
		conditions string
		want       int
	}{{`[` + first + `]`, 1}, {`[` + first + `,` + second + `]`, 1}, {`[` + second + `,` + first + `]`, 1},
		{`[` + second + `]`, 0}, {`{}`, 0}, {`null`, 0}} {
		var o v1.NodeNetwork
		raw := `{"metadata":{"name":"a"},"spec":{"nodeID":7},"status":{"version":"1","conditions":` + test.conditions +
			`}}`
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(raw), &o); err != nil {
			t.Errorf("%s: %v", test.conditions, err)
			continue
		}
		if len(o.Status.Conditions) != test.want || o.Spec.NodeID != 7 || o.Status.Version != "1" {
			t.Errorf("%s: read %+v", test.conditions, o)
		}
		for _, c := range o.Status.Conditions {
			if c.Type != v1.ConditionReady || c.LastTransitionTime.Year() != 2026 {
				t.Errorf("%s: read %+v", test.conditions, c)
			}
		}
	}
}

// schemas returns the schema of each kind.
func schemas(t *testing.T) map[string]*spec.Schema {
	t.Helper()
	files, err := manifests.CRDs.ReadDir("crds")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*spec.Schema)
	for _, file := range files {
		text, err := manifests.CRDs.ReadFile("crds/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema *spec.Schema `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		all[crd.Spec.Names.Kind] = crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	if len(all) == 0 {
		t.Fatal("no kinds")
	}
	return all
}

// leaves returns the schemas of the fields that have no fields, by path. The API server reads metadata itself.
func leaves(path string, s *spec.Schema) map[string]*spec.Schema {
	if s.Items != nil && s.Items.Schema != nil {
		return leaves(path+"[]", s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		return leaves(path+".key", s.AdditionalProperties.Schema)
	}
	all := make(map[string]*spec.Schema)
	if len(s.Properties) == 0 {
		all[path] = s
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			continue
		}
		property := s.Properties[name]
		maps.Copy(all, leaves(path+"."+name, &property))
	}
	return all
}

// accepts reports whether a value is valid, and returns the text with which the API server stores it.
func accepts(t *testing.T, validator *validate.SchemaValidator, text string) (stored string, valid bool) {
	t.Helper()
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded), validator.Validate(value).IsValid()
}

// nested returns an object with one field.
func nested(path, value string) string {
	text := value
	for _, name := range slices.Backward(strings.Split(strings.ReplaceAll(path, "[]", ".[]"), ".")[1:]) {
		if name == "[]" {
			text = "[" + text + "]"
			continue
		}
		key, err := json.Marshal(name)
		if err != nil {
			panic(err)
		}
		text = fmt.Sprintf("{%s:%s}", key, text)
	}
	return text
}
