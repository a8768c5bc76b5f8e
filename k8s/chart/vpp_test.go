package chart

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/install/vppconf"
)

// onVPP are the variants with VPP in a DaemonSet.
var onVPP = []string{"on VPP", "on VPP with hugepages", "on VPP without taps"}

func TestVPPReplacesTheEmbeddedDataplane(t *testing.T) {
	for name, changes := range variants {
		sets := rendered(t, changes).sets
		_, embedded := sets["weft-vswitch"]
		_, vpp := sets["weft-vpp"]
		if want := slices.Contains(onVPP, name); vpp != want || embedded != (changes["config.dataplane.type"] == nil) {
			t.Errorf("%s: VPP %t, weft-vswitch %t", name, vpp, embedded)
		}
	}
}

func TestVPPIsUpdatedOnDeleteOnly(t *testing.T) {
	c := rendered(t, variants["on VPP"])
	set := c.sets["weft-vpp"]
	pod := set.Spec.Template.Spec
	if set.Spec.UpdateStrategy.Type != "OnDelete" || pod.Containers[0].LivenessProbe != nil {
		t.Errorf("update strategy %q, liveness probe %v: an upgrade or a slow response interrupts pods",
			set.Spec.UpdateStrategy.Type, pod.Containers[0].LivenessProbe)
	}
	if !pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.PriorityClassName != "system-node-critical" {
		t.Errorf("host network %t, PID %t, IPC %t, priority %q", pod.HostNetwork, pod.HostPID, pod.HostIPC,
			pod.PriorityClassName)
	}
	for _, account := range c.accounts {
		if account.Name == pod.ServiceAccountName &&
			(account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken) {
			t.Errorf("%s mounts a token", account.Name)
		}
	}
}

func TestVPPReadsTheConfigurationOfTheInitContainer(t *testing.T) {
	for _, name := range onVPP {
		t.Run(name, func(t *testing.T) {
			c := rendered(t, variants[name])
			pod := c.sets["weft-vpp"].Spec.Template.Spec
			writer := pod.InitContainers[0]
			vpp := pod.Containers[0]
			var o vppconf.Options
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.Flags(flags)
			if err := flags.Parse(writer.Args[1:]); err != nil || writer.Args[0] != "vpp-config" {
				t.Fatalf("%v: %v", writer.Args, err)
			}
			if err := o.Validate(); err != nil {
				t.Error(err)
			}
			if vpp.Args[0] != "-c" || vpp.Args[1] != o.Output {
				t.Errorf("arguments of VPP %v, output %s", vpp.Args, o.Output)
			}
			for _, container := range []corev1.Container{writer, vpp, containers(c)["weft-agent/agent"]} {
				if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
					return m.MountPath == o.RuntimeDir
				}) {
					t.Errorf("%s does not mount %s", container.Name, o.RuntimeDir)
				}
			}
			if a, b := writer.Resources, vpp.Resources; a.String() != b.String() {
				t.Errorf("resources of the writer are %v, those of VPP %v", a, b)
			}
			if a, b := writer.SecurityContext.Privileged, vpp.SecurityContext.Privileged; (a == nil) != (b == nil) {
				t.Error("the init container and VPP have different devices")
			}
			if config := agentConfig(t, c); config.Dataplane.Socket != o.RuntimeDir+"/api.sock" {
				t.Errorf("the agent connects to %s", config.Dataplane.Socket)
			}
		})
	}
}

func agentConfig(t *testing.T, c cluster) config.Config {
	t.Helper()
	file := writeConfig(t, c)
	config, err := config.Read(pflag.NewFlagSet("", pflag.ContinueOnError), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestHugepagesAreRequestedIfUsed(t *testing.T) {
	for _, name := range onVPP {
		pod := rendered(t, variants[name]).sets["weft-vpp"].Spec.Template.Spec
		amount, requested := pod.Containers[0].Resources.Limits["hugepages-2Mi"]
		mounted := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.EmptyDir != nil && v.EmptyDir.Medium == "HugePages-2Mi"
		})
		if want := name == "on VPP with hugepages"; requested != want || mounted != want ||
			want && amount.String() != "256Mi" {
			t.Errorf("%s: requested %t (%s), mounted %t", name, requested, amount.String(), mounted)
		}
	}
}

func TestVPPHasTheDocumentedCapabilities(t *testing.T) {
	vpp := containers(rendered(t, variants["on VPP without taps"]))["weft-vpp/vpp"].SecurityContext
	var added []string
	for _, capability := range vpp.Capabilities.Add {
		added = append(added, string(capability))
	}
	slices.Sort(added)
	if want := capabilitiesIn(t, "../../docs/vpp.md")["weft-vpp/vpp"]; vpp.Privileged != nil ||
		!slices.Equal(added, want) {
		t.Errorf("privileged %v, capabilities %v; docs/vpp.md says %v", vpp.Privileged, added, want)
	}
}
