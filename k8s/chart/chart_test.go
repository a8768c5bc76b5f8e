package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
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
	budget     policy.PodDisruptionBudget
}

// rendered renders the chart with changed values and parses it strictly, like the API server.
func rendered(t *testing.T, changes map[string]any) cluster {
	t.Helper()
	got := cluster{sets: map[string]apps.DaemonSet{}}
	texts := texts(t, changes)
	for _, name := range []string{"config.yaml", "vswitch.yaml", "vpp.yaml", "agent.yaml", "controller.yaml"} {
		for _, document := range bytes.Split([]byte(texts[name]), []byte("\n---\n")) {
			got.add(t, document)
		}
	}
	return got
}

// texts renders the chart with changed values. The keys have dots between their parts, like those of helm --set.
func texts(t *testing.T, changes map[string]any) map[string]string {
	t.Helper()
	c, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := c.Render("weft-system", nested(changes))
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// nested returns the tree of values with dots in their keys.
func nested(changes map[string]any) map[string]any {
	tree := map[string]any{}
	for key, value := range changes {
		keys := strings.Split(key, ".")
		values := tree
		for _, k := range keys[:len(keys)-1] {
			if _, is := values[k]; !is {
				values[k] = map[string]any{}
			}
			values = values[k].(map[string]any)
		}
		values[keys[len(keys)-1]] = value
	}
	return tree
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
	case "PodDisruptionBudget":
		err = yaml.UnmarshalStrict(document, &c.budget)
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
	"on VPP with hugepages": {
		"config.dataplane.type": "vpp",
		"vpp.hugepages.size":    "2M",
		"vpp.args":              []any{"--workers=2"},
		"vpp.resources.limits":  map[string]any{"cpu": 4, "memory": "1Gi"},
	},
	"on VPP without taps": {
		"config.dataplane.type":   "vpp",
		"vpp.privileged":          false,
		"vpp.dir":                 "/run/weft-vpp",
		"config.dataplane.socket": "/run/weft-vpp/api.sock",
	},
	"with metrics": {
		"agent.podAnnotations": map[string]any{"prometheus.io/scrape": "true"},
		"config.http":          map[string]any{"listen": "0.0.0.0:9465"},
	},
	"other paths": {"cni.binDir": "/usr/libexec/cni", "cni.behind": []any{}, "image.tag": "v2", "tolerations": []any{},
		"agent.env": []any{map[string]any{"name": "WEFT_LOG_LEVEL", "value": "debug"}}},
}

func TestNotesAndControllerReportPoliciesThatAreNotEnforced(t *testing.T) {
	for _, tt := range []struct {
		changes map[string]any
		report  bool
	}{
		{nil, false},
		{map[string]any{"config.kubernetes.enforcePolicies": false}, true},
		{
			map[string]any{
				"config.kubernetes.enforcePolicies":       false,
				"config.kubernetes.reportNetworkPolicies": false,
			},
			false,
		},
		{map[string]any{"config.kubernetes.enforcePolicies": false, "cni.mode": "delegate"}, false},
	} {
		if notes := texts(t, tt.changes)[notes]; strings.Contains(notes,
			"does not enforce NetworkPolicies") != tt.report {
			t.Errorf("%v: the notes are\n%s", tt.changes, notes)
		}
		args := rendered(t, tt.changes).controller.Spec.Template.Spec.Containers[0].Args
		if slices.Contains(args, "--report-network-policies=false") == tt.report {
			t.Errorf("%v: the controller has the arguments %q", tt.changes, args)
		}
	}
}

func TestTheRightToAnnotatePodsIsOptional(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		changes := map[string]any{"annotatePods": allowed}
		if given := strings.Contains(texts(t, changes)["annotate.yaml"],
			"name: weft-agent-annotate\n"); given != allowed {
			t.Errorf("with annotatePods %v the right exists: %v", allowed, given)
		}
		env := containers(rendered(t, changes))["weft-agent/agent"].Env
		disabled := slices.ContainsFunc(env, func(e corev1.EnvVar) bool {
			return e.Name == "WEFT_KUBERNETES_NETWORK_STATUS" && e.Value == "false"
		})
		if disabled == allowed {
			t.Errorf("right to annotate %v, network status disabled %v", allowed, disabled)
		}
	}
}

func TestRolesOfOperatorsAreOptional(t *testing.T) {
	for _, is := range []bool{false, true} {
		rights := texts(t, map[string]any{"operatorRoles": is})["operator.yaml"]
		if given := strings.Contains(rights, "name: weft-operator\n"); given != is {
			t.Errorf("with operatorRoles %v the role exists: %v", is, given)
		}
	}
}

func TestPoliciesForPodsAreOptional(t *testing.T) {
	for _, tt := range []struct{ value, file, name string }{
		{"admission.validatePods", "pods.yaml", "policyName: weft-pods\n"},
		{"admission.validateClaims", "claim-parameters.yaml", "policyName: weft-claim-parameters\n"},
		{"admission.protectNetworkStatus", "network-status.yaml", "policyName: weft-network-status\n"},
		{"admission.setMemifLimits", "memif-limits.yaml", "policyName: weft-memif-limits\n"},
	} {
		for _, is := range []bool{false, true} {
			text := texts(t, map[string]any{tt.value: is})[tt.file]
			if exists := strings.Contains(text, tt.name); exists != is {
				t.Errorf("with %s %v the policy exists: %v", tt.value, is, exists)
			}
		}
	}
}

// Where another plugin creates the main interface, it is the one to limit its bandwidth.
func TestPolicyForPodsRefusesBandwidthLimitsOnlyWithAMainInterfaceOfWeft(t *testing.T) {
	for mode, refuses := range map[string]bool{"primary": true, "chained": false, "delegate": false} {
		changes := map[string]any{
			"cni.mode":   mode,
			"cni.extend": map[string]string{"chained": "/etc/cni/net.d/10-other.conflist"}[mode],
		}
		if has := strings.Contains(texts(t, changes)["pods.yaml"], "-bandwidth"); has != refuses {
			t.Errorf("with cni.mode %s the policy refuses limits: %v", mode, has)
		}
	}
}

func TestOptionalFunctionsOfTheControllerComeWithTheirRights(t *testing.T) {
	for _, tt := range []struct{ value, flag, file, role string }{
		{"controller.untaintNodes", "--untaint-nodes", "taint.yaml", "name: weft-controller-taint\n"},
		{"controller.serviceEndpoints", "--service-endpoints", "endpoints.yaml", "name: weft-controller-endpoints\n"},
		{
			"controller.persistentIPs", "--persistent-ips", "persistent-ips.yaml",
			"name: weft-controller-persistent-ips\n",
		},
	} {
		for _, is := range []bool{false, true} {
			rights := texts(t, map[string]any{tt.value: is})[tt.file]
			if given := strings.Contains(rights, tt.role); given != is {
				t.Errorf("with %s %v the role exists: %v", tt.value, is, given)
			}
			pod := rendered(t, map[string]any{tt.value: is}).controller.Spec.Template.Spec
			if has := slices.Contains(pod.Containers[0].Args, tt.flag); has != is {
				t.Errorf("with %s %v the controller's arguments are %q", tt.value, is, pod.Containers[0].Args)
			}
			if !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
				return t.Key == controller.TaintNotReady
			}) {
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
		"Weft enforces": {nil, false},
		"main":          {map[string]any{"config.kubernetes.enforcePolicies": false}, true},
		"chained": {
			map[string]any{"config.kubernetes.enforcePolicies": false, "cni.mode": "chained"}, false,
		},
		"another CNI enforces": {
			map[string]any{
				"config.kubernetes.enforcePolicies":       false,
				"config.kubernetes.reportNetworkPolicies": false,
			},
			false,
		},
		"endpoints of other links": {
			map[string]any{"config.kubernetes.enforcePolicies": false, "controller.serviceEndpoints": true}, true,
		},
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
				if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
					return m.MountPath == dir && !m.ReadOnly
				}) {
					t.Errorf("%s is not mounted from the node", dir)
				}
			}
		})
	}
}

// Sources without a tag have the version of the chart in the repository.
func TestTheAppVersionIsThatOfThePrograms(t *testing.T) {
	c, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if built := version.Number(); !strings.HasPrefix(built, c.chart.Metadata.AppVersion) ||
		"v"+c.chart.Metadata.Version != c.chart.Metadata.AppVersion {
		t.Errorf("version of the programs %q, chart %q, appVersion %q", built, c.chart.Metadata.Version, c.chart.Metadata.AppVersion)
	}
}

func TestTheVersionOfTheBuildIsTheTagOfTheImage(t *testing.T) {
	c, err := Load("v1.2.3-dev.4.g0123456789ab")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		image map[string]any
		want  string
	}{
		{map[string]any{}, "localhost/weft:v1.2.3-dev.4.g0123456789ab"},
		{map[string]any{"name": "registry.example/weft", "tag": "v7"}, "registry.example/weft:v7"},
		{
			map[string]any{"name": "registry.example/weft", "tag": "v7", "digest": digest},
			"registry.example/weft@" + digest,
		},
	} {
		objects, _, err := c.Manifest("weft-system", map[string]any{"image": tt.image})
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(objects, "image: "+tt.want+"\n"); n != 4 || strings.Count(objects, " image: ") != n {
			t.Errorf("%d of %d containers have the image %s", n, strings.Count(objects, " image: "), tt.want)
		}
	}
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
