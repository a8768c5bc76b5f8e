package chart

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// containers returns the containers of all DaemonSets, by DaemonSet and name.
func containers(c cluster) map[string]corev1.Container {
	all := map[string]corev1.Container{}
	for name, set := range c.sets {
		for _, container := range set.Spec.Template.Spec.Containers {
			all[name+"/"+container.Name] = container
		}
	}
	return all
}

func TestVolumesMatchMounts(t *testing.T) {
	for name, changes := range variants {
		t.Run(name, func(t *testing.T) {
			for _, set := range rendered(t, changes).sets {
				checkVolumes(t, set.Spec.Template.Spec)
			}
		})
	}
}

// checkVolumes requires that each volume is mounted, and hostPaths at the same path: components exchange paths of
// sockets.
func checkVolumes(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	paths := map[string]string{}
	used := map[string]bool{}
	for _, v := range pod.Volumes {
		paths[v.Name] = ""
		if v.HostPath != nil {
			paths[v.Name] = strings.TrimPrefix(v.HostPath.Path, "/var") // in the image /var/run is a link to /run
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range c.VolumeMounts {
			used[m.Name] = true
			checkMount(t, c.Name, m, paths)
		}
	}
	for name := range paths {
		if !used[name] {
			t.Errorf("volume %s is not mounted", name)
		}
	}
}

func checkMount(t *testing.T, container string, m corev1.VolumeMount, paths map[string]string) {
	t.Helper()
	path, ok := paths[m.Name]
	switch {
	case !ok:
		t.Errorf("%s mounts %s, which is not a volume", container, m.Name)
	case path != "" && strings.TrimPrefix(m.MountPath, "/var") != path:
		t.Errorf("%s has %s at %s", container, path, m.MountPath)
	}
	if propagated := m.MountPropagation != nil; propagated != (m.Name == "netns") {
		t.Errorf("%s: mount propagation of %s: %v", container, m.MountPath, propagated)
	}
}

func TestContainersHaveTheDocumentedCapabilities(t *testing.T) {
	documented := documentedCapabilities(t)
	for name, c := range containers(rendered(t, nil)) {
		s := c.SecurityContext
		if s == nil || s.Privileged != nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: %+v", name, s)
			continue
		}
		var added []string
		for _, capability := range s.Capabilities.Add {
			added = append(added, string(capability))
		}
		slices.Sort(added)
		if !slices.Equal(added, documented[name]) {
			t.Errorf("%s has %v, and docs/install.md says %v", name, added, documented[name])
		}
	}
	for name, c := range containers(rendered(t, variants["privileged"])) {
		if privileged := c.SecurityContext.Privileged != nil; privileged != (name != "weft-agent/install") {
			t.Errorf("%s in the variant privileged: %v", name, privileged)
		}
	}
}

func TestMemoryLimitsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range containers(rendered(t, nil)) {
		request := c.Resources.Requests.Memory()
		limit := c.Resources.Limits.Memory()
		if request.IsZero() || limit.Cmp(*request) < 0 {
			t.Errorf("%s requests %s of memory with limit %s", name, request, limit)
		}
		if row := fmt.Sprintf("\n| `%s` | %s | %s |", name, request, limit); !strings.Contains(string(page), row) {
			t.Errorf("docs/operations.md has no row %q", row)
		}
	}
}

// documentedCapabilities parses the table of docs/install.md: DaemonSet/container -> sorted capabilities.
func documentedCapabilities(t *testing.T) map[string][]string {
	t.Helper()
	documented := capabilitiesIn(t, "../../docs/install.md")
	if len(documented) != 2 {
		t.Fatalf("the page has capabilities of %d containers", len(documented))
	}
	return documented
}

// capabilitiesIn parses the tables of a page.
func capabilitiesIn(t *testing.T, file string) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(weft-[a-z]+/[a-z]+)` \\| `([A-Z_]+)` \\|")
	documented := map[string][]string{}
	for _, match := range row.FindAllStringSubmatch(string(page), -1) {
		documented[match[1]] = append(documented[match[1]], match[2])
	}
	for name := range documented {
		slices.Sort(documented[name])
	}
	return documented
}

func TestDaemonSetsRunOnAllNodes(t *testing.T) {
	c := rendered(t, nil)
	for name, set := range c.sets {
		pod := set.Spec.Template.Spec
		problems := []struct {
			what string
			is   bool
		}{
			{"without the host network", !pod.HostNetwork},
			{"with host PID or IPC", pod.HostPID || pod.HostIPC},
			{"without a critical priority", pod.PriorityClassName != "system-node-critical"},
			{
				"does not tolerate all taints",
				len(pod.Tolerations) != 1 || pod.Tolerations[0].Operator != corev1.TolerationOpExists ||
					pod.Tolerations[0].Key != "",
			},
			{
				"selector differs from labels",
				fmt.Sprint(set.Spec.Selector.MatchLabels) != fmt.Sprint(set.Spec.Template.Labels),
			},
			{"in another namespace", set.Namespace != "weft-system"},
		}
		for _, p := range problems {
			if p.is {
				t.Errorf("%s: %s", name, p.what)
			}
		}
	}
	for _, account := range c.accounts {
		if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
			t.Errorf("%s mounts a token", account.Name)
		}
	}
}

func TestAnUpdateStartsTheNewDataplaneWhileTheOldOneRuns(t *testing.T) {
	set := rendered(t, nil).sets["weft-vswitch"]
	update := set.Spec.UpdateStrategy.RollingUpdate
	if update == nil || update.MaxSurge.IntValue() != 1 || update.MaxUnavailable.IntValue() != 0 {
		t.Errorf("update strategy %+v", set.Spec.UpdateStrategy)
	}
	container := set.Spec.Template.Spec.Containers[0]
	if !slices.Contains(container.Args, "--standby") {
		t.Errorf("the new dataplane fails while the old one runs: %q", container.Args)
	}
	// The name is unique for each pod, so the probe succeeds when this process serves or waits.
	if len(container.Env) != 1 || container.Env[0].Name != "WEFT_VSWITCH_NAME" ||
		container.Env[0].ValueFrom.FieldRef.FieldPath != "metadata.name" {
		t.Errorf("environment %+v", container.Env)
	}
	if container.StartupProbe == nil ||
		strings.Join(container.StartupProbe.Exec.Command, " ") != "/usr/local/bin/weft-vswitch status" {
		t.Errorf("startup probe %+v", container.StartupProbe)
	}
	if container.LivenessProbe != nil || container.ReadinessProbe != nil {
		t.Error("a liveness or readiness probe can interrupt pods")
	}
	onDelete := rendered(t, map[string]any{
		"vswitch.updateStrategy": "OnDelete",
	}).sets["weft-vswitch"].Spec.UpdateStrategy
	if onDelete.Type != "OnDelete" || onDelete.RollingUpdate != nil {
		t.Errorf("update strategy %+v", onDelete)
	}
}

func TestProbesOfTheAgent(t *testing.T) {
	agent := containers(rendered(t, nil))["weft-agent/agent"]
	ready := strings.Join(agent.ReadinessProbe.Exec.Command, " ")
	alive := strings.Join(agent.LivenessProbe.Exec.Command, " ")
	if ready != "/usr/local/bin/weft-agent health" || alive != ready+" --alive" {
		t.Errorf("ready: %s; alive: %s", ready, alive)
	}
	for _, p := range []*corev1.Probe{agent.ReadinessProbe, agent.LivenessProbe, agent.StartupProbe} {
		if p.TimeoutSeconds < 5 {
			t.Errorf("%v has a timeout of %d s, too short for a busy node", p.Exec.Command, p.TimeoutSeconds)
		}
	}
}

func TestTheControllerHasNoPrivileges(t *testing.T) {
	c := rendered(t, nil).controller
	pod := c.Spec.Template.Spec
	container := pod.Containers[0]
	s := container.SecurityContext
	problems := map[string]bool{
		"runs as root": s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0,
		"has capabilities": len(s.Capabilities.Add) > 0 ||
			!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}),
		"can gain privileges": s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation,
		"has a writable root": s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem,
		"has volumes":         len(pod.Volumes) > 0,
		"has another account": pod.ServiceAccountName != "weft-controller",
		"selects other pods":  fmt.Sprint(c.Spec.Selector.MatchLabels) != fmt.Sprint(c.Spec.Template.Labels),
		"stays on a lost node": slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
			return t.Key == ""
		}),
		"uses the pod network": !pod.HostNetwork,
		"has remote probes": container.LivenessProbe.HTTPGet.Host != "127.0.0.1" ||
			container.ReadinessProbe.HTTPGet.Host != "127.0.0.1",
	}
	for what, is := range problems {
		if is {
			t.Errorf("the controller %s", what)
		}
	}
	if off := rendered(t, map[string]any{"controller.enabled": false}).controller; off.Name != "" {
		t.Error("the controller exists although it is disabled")
	}
	if image := containers(rendered(t, nil))["weft-agent/agent"].Image; container.Image != image {
		t.Errorf("image %s, agents have %s", container.Image, image)
	}
}
