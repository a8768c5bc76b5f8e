package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/install"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/k8s/controller"
)

const dir = "weft"

// cluster has the objects of a rendered chart.
type cluster struct {
	config     corev1.ConfigMap
	accounts   []corev1.ServiceAccount
	sets       map[string]apps.DaemonSet
	controller apps.Deployment
}

// rendered renders the chart with changed values and parses it strictly, like the API server.
func rendered(t *testing.T, changes map[string]any) cluster {
	t.Helper()
	c, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range changes {
		c.set(key, value)
	}
	got := cluster{sets: map[string]apps.DaemonSet{}}
	for _, name := range plain {
		text, err := c.render(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			got.add(t, document)
		}
	}
	return got
}

func (c *cluster) add(t *testing.T, document []byte) {
	t.Helper()
	var meta struct{ Kind string }
	err := yaml.Unmarshal(document, &meta)
	switch meta.Kind {
	case "ConfigMap":
		err = yaml.UnmarshalStrict(document, &c.config)
	case "ServiceAccount":
		var account corev1.ServiceAccount
		err = yaml.UnmarshalStrict(document, &account)
		c.accounts = append(c.accounts, account)
	case "DaemonSet":
		var set apps.DaemonSet
		err = yaml.UnmarshalStrict(document, &set)
		c.sets[set.Name] = set
	case "Deployment":
		err = yaml.UnmarshalStrict(document, &c.controller)
	case "":
		if len(bytes.TrimSpace(document)) > 0 {
			t.Errorf("a document without a kind:\n%s", document)
		}
	default:
		t.Errorf("unexpected kind %s", meta.Kind)
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", meta.Kind, err, document)
	}
}

// variants are values that change the rendered objects.
var variants = map[string]map[string]any{
	"default":             {},
	"chained":             {"cni.mode": "chained", "cni.extend": "/etc/cni/net.d/10-calico.conflist"},
	"exclusive":           {"cni.exclusive": true},
	"privileged":          {"agent.privileged": true, "vswitch.privileged": true},
	"without annotations": {"annotatePods": false},
	"on VPP":              {"config.dataplane.type": "vpp"},
	"on VPP of the node":  {"config.dataplane.type": "vpp", "vpp.enabled": false},
	"on VPP with hugepages": {"config.dataplane.type": "vpp", "vpp.hugepages.size": "2M", "vpp.args": []any{"--workers=2"},
		"vpp.resources.limits": map[string]any{"cpu": 4, "memory": "1Gi"}},
	"on VPP without taps": {"config.dataplane.type": "vpp", "vpp.privileged": false, "vpp.dir": "/run/weft-vpp", "config.dataplane.socket": "/run/weft-vpp/api.sock"},
	"with metrics":        {"agent.podAnnotations": map[string]any{"prometheus.io/scrape": "true"}, "config.http": map[string]any{"listen": "0.0.0.0:9465"}},
	"other paths": {"cni.binDir": "/usr/libexec/cni", "cni.behind": []any{}, "image.tag": "v2", "tolerations": []any{},
		"agent.env": []any{map[string]any{"name": "WEFT_LOG_LEVEL", "value": "debug"}}},
}

func TestTheManifestsAreUpToDate(t *testing.T) {
	for name, changes := range manifests {
		want, err := manifest(dir, changes)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("../manifests/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s: run go run ./k8s/chart (-chart +file):\n%s", name, diff)
		}
	}
}

func TestWriteRendersAllManifests(t *testing.T) {
	out := t.TempDir()
	if err := write(dir, out); err != nil {
		t.Fatal(err)
	}
	for name := range manifests {
		if text, err := os.ReadFile(filepath.Join(out, name)); err != nil || !strings.HasPrefix(string(text), heading) {
			t.Errorf("%s: %.80q (%v)", name, text, err)
		}
	}
	if err := write("nowhere", out); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a missing chart: %v", err)
	}
}

// rows: AWS-42
func TestTheChartHasTheRightsAndCRDsOfTheManifests(t *testing.T) {
	c, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.render("rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.set("annotatePods", false)
	less, err := c.render("rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../manifests/rbac.yaml")
	if err != nil || !strings.Contains(string(text), string(manifest)) {
		t.Errorf("the chart lacks rights of rbac.yaml (%v)", err)
	}
	for _, kind := range []string{"kind: Namespace", "kind: ClusterRole\n", "kind: ValidatingAdmissionPolicy\n"} {
		if !strings.Contains(string(text), kind) {
			t.Errorf("no %s", kind)
		}
	}
	if !strings.Contains(string(text), "weft-agent-annotate") || strings.Contains(string(less), "weft-agent-annotate") {
		t.Error("annotatePods does not control the right to annotate pods")
	}
	for allowed, changes := range map[bool]map[string]any{true: {}, false: {"annotatePods": false}} {
		env := containers(rendered(t, changes))["weft-agent/agent"].Env
		disabled := slices.ContainsFunc(env, func(e corev1.EnvVar) bool {
			return e.Name == "WEFT_KUBERNETES_NETWORK_STATUS" && e.Value == "false"
		})
		if disabled == allowed {
			t.Errorf("right to annotate %v, network status disabled %v", allowed, disabled)
		}
	}
	if kinds, err := filepath.Glob(filepath.Join(dir, "crds", "*.yaml")); err != nil || len(kinds) < 6 {
		t.Errorf("the chart has %d CRDs (%v)", len(kinds), err)
	}
}

func TestRolesOfOperatorsAreOptional(t *testing.T) {
	for _, is := range []bool{false, true} {
		c, err := load(dir)
		if err != nil {
			t.Fatal(err)
		}
		c.set("operatorRoles", is)
		rights, err := c.render("rights.yaml")
		if given := strings.Contains(string(rights), "name: weft-operator\n"); err != nil || given != is {
			t.Errorf("with operatorRoles %v the role exists: %v (%v)", is, given, err)
		}
	}
}

// rows: CIL-23
func TestOptionalFunctionsOfTheControllerComeWithTheirRights(t *testing.T) {
	for _, tt := range []struct{ value, flag, role string }{
		{"controller.untaintNodes", "--untaint-nodes", "name: weft-controller-taint\n"},
		{"controller.serviceEndpoints", "--service-endpoints", "name: weft-controller-endpoints\n"},
	} {
		for _, is := range []bool{false, true} {
			c, err := load(dir)
			if err != nil {
				t.Fatal(err)
			}
			c.set(tt.value, is)
			rights, err := c.render("rights.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if given := strings.Contains(string(rights), tt.role); given != is {
				t.Errorf("with %s %v the role exists: %v", tt.value, is, given)
			}
			pod := rendered(t, map[string]any{tt.value: is}).controller.Spec.Template.Spec
			if has := slices.Contains(pod.Containers[0].Args, tt.flag); has != is {
				t.Errorf("with %s %v the controller's arguments are %q", tt.value, is, pod.Containers[0].Args)
			}
			if !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.Key == controller.TaintNotReady }) {
				t.Error("the controller does not tolerate the taint that it removes")
			}
		}
	}
}

func TestNetworkPoliciesAreReportedIfWeftIsTheMainCNI(t *testing.T) {
	const off = "--report-network-policies=false"
	for name, tt := range map[string]struct {
		changes map[string]any
		want    bool
	}{
		"main":                     {nil, true},
		"chained":                  {map[string]any{"cni.mode": "chained"}, false},
		"Weft enforces":            {map[string]any{"config.kubernetes.enforcePolicies": true}, false},
		"another CNI enforces":     {map[string]any{"config.kubernetes.reportNetworkPolicies": false}, false},
		"endpoints of other links": {map[string]any{"controller.serviceEndpoints": true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := rendered(t, tt.changes)
			if args := got.controller.Spec.Template.Spec.Containers[0].Args; slices.Contains(args, off) == tt.want {
				t.Errorf("the controller's arguments are %q", args)
			}
			settings, err := config.Read(pflag.NewFlagSet("", pflag.ContinueOnError), writeConfig(t, got), nil)
			if err != nil {
				t.Fatal(err)
			}
			// A chained agent detects its mode itself.
			if want := tt.changes["config.kubernetes.reportNetworkPolicies"] == nil; settings.Kubernetes.ReportPolicies != want {
				t.Errorf("the agents report: %v, want %v", settings.Kubernetes.ReportPolicies, want)
			}
		})
	}
}

func TestTheAgentAcceptsItsConfiguration(t *testing.T) {
	for name, changes := range variants {
		t.Run(name, func(t *testing.T) {
			file := writeConfig(t, rendered(t, changes))
			settings, err := config.Read(pflag.NewFlagSet("", pflag.ContinueOnError), file, nil)
			if err != nil {
				t.Fatal(err)
			}
			if starts := settings.Dataplane.Type == config.Embedded && !settings.Dataplane.External; starts {
				t.Error("the agent starts a dataplane in its own container")
			}
			if main := changes["cni.mode"] == nil; settings.Masquerade.Enabled != main {
				t.Errorf("masquerading %t, want %t", settings.Masquerade.Enabled, main)
			}
		})
	}
}

// writeConfig writes the agent's configuration to a file.
func writeConfig(t *testing.T, c cluster) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte(c.config.Data["agent.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTheInstallerAcceptsItsFlags(t *testing.T) {
	for name, changes := range variants {
		t.Run(name, func(t *testing.T) {
			container := containers(rendered(t, changes))["weft-agent/install"]
			var o install.Options
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.InstallFlags(flags)
			if err := flags.Parse(container.Args[1:]); err != nil || container.Args[0] != "install" {
				t.Fatalf("%v: %v", container.Args, err)
			}
			if err := o.ValidateInstall(); err != nil || !o.Watch || o.Exclusive != (name == "exclusive") {
				t.Errorf("%v: %v", container.Args, err)
			}
			for _, dir := range []string{o.BinDir, o.ConfDir, filepath.Dir(o.Socket)} {
				if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == dir && !m.ReadOnly }) {
					t.Errorf("%s is not mounted from the node", dir)
				}
			}
		})
	}
}

func TestTheAppVersionIsThatOfThePrograms(t *testing.T) {
	c, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if built := version.String(); !strings.HasPrefix(built, "weft "+c.Chart.AppVersion) {
		t.Errorf("version of the programs %q, appVersion %q", built, c.Chart.AppVersion)
	}
}
