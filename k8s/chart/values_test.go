package chart

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/agent/config"
)

// schema is the part of a JSON schema that the tests read.
type schema struct {
	Type       any
	Properties map[string]schema
	Additional any `json:"additionalProperties"`
}

func readSchema(t *testing.T) (s schema) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "values.schema.json"))), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Every value of values.yaml is in the schema, every object of the schema rejects other keys, and every key outside of
// config has a default.
func TestTheSchemaHasTheValuesOfTheChart(t *testing.T) {
	c, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	compareKeys(t, "", readSchema(t), c.chart.Values)
}

func compareKeys(t *testing.T, path string, s schema, values map[string]any) {
	if len(s.Properties) == 0 {
		return // a map with keys of the operator
	}
	if s.Additional != false {
		t.Errorf("%s admits unknown keys", path)
	}
	for key, value := range values {
		next, is := s.Properties[key]
		if !is {
			t.Errorf("the schema lacks %s%s", path, key)
		}
		if branch, is := value.(map[string]any); is {
			compareKeys(t, path+key+".", next, branch)
		}
	}
	for key := range s.Properties {
		_, is := values[key]
		optional := path+key == "global" || strings.HasPrefix(path, "config.") || strings.HasSuffix(path, "resources.")
		if !is && !optional {
			t.Errorf("the schema has %s%s, which values.yaml lacks", path, key)
		}
	}
}

// The agent's configuration has one schema in the chart and its keys in agent/config.
func TestTheSchemaHasTheKeysOfTheAgent(t *testing.T) {
	var c config.Config
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.Flags(flags)
	plain := strings.NewReplacer("-", "", ".", "")
	var want, got []string
	flags.VisitAll(func(f *pflag.Flag) { want = append(want, plain.Replace(f.Name)) })
	for _, key := range leaves("", readSchema(t).Properties["config"]) {
		got = append(got, strings.ToLower(plain.Replace(key)))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys of the agent (-) and of values.schema.json (+):\n%s", diff)
	}
}

func leaves(path string, s schema) (keys []string) {
	if len(s.Properties) == 0 {
		return []string{path}
	}
	for key, next := range s.Properties {
		keys = append(keys, leaves(path+"."+key, next)...)
	}
	return keys
}

func TestInvalidValuesAreRejected(t *testing.T) {
	c, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	for assignment, why := range map[string]string{
		"controler.enabled=false":        "controler",
		"vswitch.worker=2":               "worker",
		"config.dataplane.typ=vpp":       "typ",
		"config.kubernets.mode=cluster":  "kubernets",
		"config.dataplane.type=ovs":      "/config/dataplane/type",
		"cni.mode=main":                  "/cni/mode",
		"controller.replicas=two":        "/controller/replicas",
		"vswitch.workers=0":              "/vswitch/workers",
		"image.digest=sha256:12":         "/image/digest",
		"vpp.hugepages.size=4M":          "/vpp/hugepages/size",
		"vswitch.updateStrategy=Rolling": "/vswitch/updateStrategy",
		"imagePullSecrets[0].nam=x":      "/imagePullSecrets/0",
		"namespace=other":                "/namespace",
		"config.audit=1":                 "/config/audit",
	} {
		values, err := Values(nil, []string{assignment})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Render("weft-system", values); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", assignment, err)
		}
	}
}

func TestLaterValuesTakePrecedence(t *testing.T) {
	values, err := Values([][]byte{[]byte("a: {b: 1, c: 1}"), []byte("a: {c: 2}\nd: [1]")}, []string{
		"a.e=5,d={x,y}", "a.e=6",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": map[string]any{"b": 1.0, "c": 2.0, "e": int64(6)}, "d": []any{"x", "y"}}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Error(diff)
	}
	if _, err := Values([][]byte{[]byte("a: [")}, nil); err == nil {
		t.Error("invalid YAML is accepted")
	}
	if _, err := Values(nil, []string{"a"}); err == nil {
		t.Error("an assignment without a value is accepted")
	}
}

// A changed configuration replaces the agents' pods, and nothing else does.
func TestAChangedConfigurationReplacesTheAgents(t *testing.T) {
	sum := func(changes map[string]any) string {
		return rendered(t, changes).sets["weft-agent"].Spec.Template.Annotations["checksum/config"]
	}
	first := sum(nil)
	for _, changes := range []map[string]any{
		{"config.log.level": "debug"}, {"config.dataplane.type": "vpp"}, {"cni.mode": "chained"},
	} {
		if got := sum(changes); len(got) != 64 || got == first {
			t.Errorf("%v: checksum %q, before %q", changes, got, first)
		}
	}
	if got := sum(map[string]any{"vswitch.workers": 2, "controller.replicas": 2}); got != first {
		t.Error("values of other components replace the agents")
	}
}

func TestCRDsAreUpgradedAndKept(t *testing.T) {
	text := texts(t, nil)["crds.yaml"]
	names := map[string]bool{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var crd extensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict([]byte(document), &crd); err != nil {
			t.Fatal(err)
		}
		if crd.Name == "" {
			continue
		}
		names[crd.Name] = true
		if crd.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("helm uninstall deletes %s, and with it all its objects", crd.Name)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "files/crds/*.yaml"))
	if err != nil || len(names) != len(files) || len(files) < 7 {
		t.Errorf("%d definitions, %d files (%v)", len(names), len(files), err)
	}
	if old, err := filepath.Glob(filepath.Join(dir, "crds")); err != nil || len(old) > 0 {
		t.Error("Helm does not upgrade definitions in a directory crds")
	}
	if off := texts(t, map[string]any{"crds.install": false})["crds.yaml"]; strings.Contains(off, "kind:") {
		t.Error("crds.install=false renders definitions")
	}
}

func TestAllObjectsAreInTheNamespaceOfTheRelease(t *testing.T) {
	c, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	everything := nested(monitoringOn)
	maps.Copy(everything, map[string]any{"operatorRoles": true, "namespace": map[string]any{"create": true},
		"controller": map[string]any{
			"replicas": 2, "untaintNodes": true, "serviceEndpoints": true, "persistentIPs": true,
		}})
	objects, notes, err := c.Manifest("elsewhere", everything)
	if err != nil {
		t.Fatal(err)
	}
	// The job labels of alerts and dashboards are not namespaces.
	if i := strings.Index(objects, "weft-system"); i >= 0 {
		t.Errorf("an object is in weft-system: %s", objects[max(i-200, 0):i+50])
	}
	for _, want := range []string{
		"  namespace: elsewhere\n", "system:serviceaccount:elsewhere:weft-agent'",
		"kind: Namespace\nmetadata:\n  name: elsewhere\n",
	} {
		if !strings.Contains(objects, want) {
			t.Errorf("no %q", want)
		}
	}
	if !strings.Contains(notes, "--weft-namespace elsewhere") {
		t.Errorf("notes:\n%s", notes)
	}
	if first := strings.Index(objects, "kind: Namespace"); first > strings.Index(objects, "kind: ServiceAccount") ||
		first < 0 {
		t.Error("the namespace is not created first")
	}
}

func TestOptionsOfPods(t *testing.T) {
	c := rendered(t, map[string]any{
		"config.dataplane.type": "vpp",
		"imagePullSecrets":      []any{map[string]any{"name": "registry"}},
		"vpp.image.digest":      digest,
	})
	pods := map[string]corev1.PodSpec{"controller": c.controller.Spec.Template.Spec}
	for name, set := range c.sets {
		pods[name] = set.Spec.Template.Spec
	}
	pods["vswitch"] = rendered(t, map[string]any{
		"imagePullSecrets": []any{map[string]any{"name": "registry"}},
	}).sets["weft-vswitch"].Spec.Template.Spec
	for name, pod := range pods {
		if len(pod.ImagePullSecrets) != 1 || pod.ImagePullSecrets[0].Name != "registry" {
			t.Errorf("%s: %v", name, pod.ImagePullSecrets)
		}
	}
	if len(pods) != 4 || pods["weft-vpp"].Containers[0].Image != "localhost/vpp@"+digest {
		t.Errorf("%d pods, image of VPP %s", len(pods), pods["weft-vpp"].Containers[0].Image)
	}
}

func TestSeveralControllersHaveADisruptionBudget(t *testing.T) {
	if one := rendered(t, nil).budget; one.Name != "" {
		t.Error("a budget for a single replica")
	}
	c := rendered(t, map[string]any{"controller.replicas": 2})
	selector := c.budget.Spec.Selector
	if c.budget.Spec.MaxUnavailable.IntValue() != 1 ||
		!maps.Equal(selector.MatchLabels, c.controller.Spec.Template.Labels) {
		t.Errorf("budget %+v", c.budget.Spec)
	}
}
