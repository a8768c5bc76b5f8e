package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// containers are those of all DaemonSets, by DaemonSet and name.
func containers(c cluster) map[string]corev1.Container {
	all := map[string]corev1.Container{}
	for name, set := range c.sets {
		for _, container := range set.Spec.Template.Spec.Containers {
			all[name+"/"+container.Name] = container
		}
	}
	return all
}

func TestVolumesAndMountsFitTogether(t *testing.T) {
	for name, changes := range variants {
		t.Run(name, func(t *testing.T) {
			for _, set := range rendered(t, changes).sets {
				checkVolumes(t, set.Spec.Template.Spec)
			}
		})
	}
}

// checkVolumes wants each volume mounted, and what is the node's at the node's path: sockets are spoken of by their paths.
func checkVolumes(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	paths, used := map[string]string{}, map[string]bool{}
	for _, v := range pod.Volumes {
		paths[v.Name] = ""
		if v.HostPath != nil {
			paths[v.Name] = strings.TrimPrefix(v.HostPath.Path, "/var") // in the image /var/run leads to /run
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
			t.Errorf("nobody mounts %s", name)
		}
	}
}

func checkMount(t *testing.T, container string, m corev1.VolumeMount, paths map[string]string) {
	t.Helper()
	path, ok := paths[m.Name]
	switch {
	case !ok:
		t.Errorf("%s mounts %s, which is no volume", container, m.Name)
	case path != "" && strings.TrimPrefix(m.MountPath, "/var") != path:
		t.Errorf("%s has %s at %s", container, path, m.MountPath)
	}
	if through := m.MountPropagation != nil; through != (m.Name == "netns") {
		t.Errorf("%s: mounts of the node in %s are seen: %v", container, m.MountPath, through)
	}
}

func TestOnlyWhoMustHasPrivileges(t *testing.T) {
	documented := capabilitiesOfThePage(t)
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
			t.Errorf("%s where all may be privileged: %v", name, privileged)
		}
	}
}

func TestMemoryIsLimitedAsThePageSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range containers(rendered(t, nil)) {
		request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
		if request.IsZero() || limit.Cmp(*request) < 0 {
			t.Errorf("%s requests %s of memory and is limited to %s", name, request, limit)
		}
		if row := fmt.Sprintf("\n| `%s` | %s | %s |", name, request, limit); !strings.Contains(string(page), row) {
			t.Errorf("docs/operations.md has no row %q", row)
		}
	}
}

// capabilitiesOfThePage reads the table of docs/install.md: DaemonSet/container -> capabilities, sorted.
func capabilitiesOfThePage(t *testing.T) map[string][]string {
	t.Helper()
	documented := capabilitiesIn(t, "../../docs/install.md")
	if len(documented) != 2 {
		t.Fatalf("the page has capabilities of %d containers", len(documented))
	}
	return documented
}

// capabilitiesIn reads the tables of a page.
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

// rows: AWS-47
func TestPodsOfTheNodeRunWhereverPodsDo(t *testing.T) {
	c := rendered(t, nil)
	for name, set := range c.sets {
		pod := set.Spec.Template.Spec
		faults := []struct {
			what  string
			fault bool
		}{
			{"not in the node's network", !pod.HostNetwork},
			{"sees the node's processes", pod.HostPID || pod.HostIPC},
			{"may be evicted", pod.PriorityClassName != "system-node-critical"},
			{"kept away by taints", len(pod.Tolerations) != 1 || pod.Tolerations[0].Operator != corev1.TolerationOpExists || pod.Tolerations[0].Key != ""},
			{"selects other pods than its own", fmt.Sprint(set.Spec.Selector.MatchLabels) != fmt.Sprint(set.Spec.Template.Labels)},
			{"in another namespace", set.Namespace != "weft-system"},
		}
		for _, f := range faults {
			if f.fault {
				t.Errorf("%s: %s", name, f.what)
			}
		}
	}
	for _, account := range c.accounts {
		if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
			t.Errorf("%s gets a token", account.Name)
		}
	}
}

func TestAnUpdateStartsTheNewDataplaneBesideTheOldOne(t *testing.T) {
	set := rendered(t, nil).sets["weft-vswitch"]
	update := set.Spec.UpdateStrategy.RollingUpdate
	if update == nil || update.MaxSurge.IntValue() != 1 || update.MaxUnavailable.IntValue() != 0 {
		t.Errorf("update strategy %+v", set.Spec.UpdateStrategy)
	}
	container := set.Spec.Template.Spec.Containers[0]
	if !slices.Contains(container.Args, "--standby") {
		t.Errorf("the new dataplane fails while the old one runs: %q", container.Args)
	}
	// The name is that of the pod, so the probe succeeds when this process serves or waits.
	if len(container.Env) != 1 || container.Env[0].Name != "WEFT_VSWITCH_NAME" || container.Env[0].ValueFrom.FieldRef.FieldPath != "metadata.name" {
		t.Errorf("environment %+v", container.Env)
	}
	if container.StartupProbe == nil || strings.Join(container.StartupProbe.Exec.Command, " ") != "/usr/local/bin/weft-vswitch status" {
		t.Errorf("startup probe %+v", container.StartupProbe)
	}
	if container.LivenessProbe != nil || container.ReadinessProbe != nil {
		t.Error("a probe of a dataplane that runs can interrupt its pods")
	}
	byHand := rendered(t, map[string]any{"vswitch.updateStrategy": "OnDelete"}).sets["weft-vswitch"].Spec.UpdateStrategy
	if byHand.Type != "OnDelete" || byHand.RollingUpdate != nil {
		t.Errorf("update strategy %+v", byHand)
	}
}

// rows: AWS-47
func TestProbesOfTheAgentAskForWhatTheyAct(t *testing.T) {
	agent := containers(rendered(t, nil))["weft-agent/agent"]
	ready, alive := strings.Join(agent.ReadinessProbe.Exec.Command, " "), strings.Join(agent.LivenessProbe.Exec.Command, " ")
	if ready != "/usr/local/bin/weft-agent health" || alive != ready+" --alive" {
		t.Errorf("ready: %s; alive: %s", ready, alive)
	}
	for _, p := range []*corev1.Probe{agent.ReadinessProbe, agent.LivenessProbe, agent.StartupProbe} {
		if p.TimeoutSeconds < 5 {
			t.Errorf("%v gives up after %d s, which a busy node needs", p.Exec.Command, p.TimeoutSeconds)
		}
	}
}

func TestTheControllerMayDoNothingOnItsNode(t *testing.T) {
	c := rendered(t, nil).writer
	pod := c.Spec.Template.Spec
	container := pod.Containers[0]
	s := container.SecurityContext
	faults := map[string]bool{
		"is root":                  s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0,
		"has capabilities":         len(s.Capabilities.Add) > 0 || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}),
		"may gain privileges":      s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation,
		"writes its image":         s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem,
		"has the node's files":     len(pod.Volumes) > 0,
		"has the agents' rights":   pod.ServiceAccountName != "weft-controller",
		"selects others' pods":     fmt.Sprint(c.Spec.Selector.MatchLabels) != fmt.Sprint(c.Spec.Template.Labels),
		"stays on a lost node":     slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.Key == "" }),
		"needs a network of pods":  !pod.HostNetwork,
		"is probed from elsewhere": container.LivenessProbe.HTTPGet.Host != "127.0.0.1" || container.ReadinessProbe.HTTPGet.Host != "127.0.0.1",
	}
	for what, is := range faults {
		if is {
			t.Errorf("the controller %s", what)
		}
	}
	if off := rendered(t, map[string]any{"controller.enabled": false}).writer; off.Name != "" {
		t.Error("it is there though it is off")
	}
	if image := containers(rendered(t, nil))["weft-agent/agent"].Image; container.Image != image {
		t.Errorf("image %s, the agents' is %s", container.Image, image)
	}
}
