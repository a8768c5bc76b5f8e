package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/weft"
)

// helmChart is the chart of the repository.
const helmChart = "../../k8s/chart/weft"

// helm runs the pinned Helm as the administrator and returns its output.
func (s *space) helm(arguments ...string) (string, error) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.c.Programs().Path("helm"),
		append([]string{"--kubeconfig=" + s.c.Control.Kubeconfig()}, arguments...)...)
	home := s.t.TempDir()
	cmd.Env = append(slices.Clone(s.c.Programs().Env()), "HOME="+home, "HELM_CACHE_HOME="+home,
		"HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w: %s", arguments[0], err, complaints.Bytes())
	}
	return string(out), nil
}

// options are values that each switch something on, with text that the objects then have.
var options = map[string]string{
	"controller.replicas=2":              "kind: PodDisruptionBudget",
	"controller.untaintNodes=true":       "--untaint-nodes",
	"operatorRoles=true":                 "name: weft-operator",
	"monitoring.podMonitor.enabled=true": "kind: PodMonitor",
	"monitoring.rules.enabled=true":      "kind: PrometheusRule",
	"monitoring.dashboard.enabled=true":  "name: weft-dashboard",
	"namespace.create=true":              "kind: Namespace",
	"config.dataplane.type=vpp":          "name: weft-vpp",
	"imagePullSecrets[0].name=registry":  "imagePullSecrets:",
	"image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef": "localhost/weft@sha256:",
	"cni.mode=chained": "--mode=chained",
}

// newHelmSpace skips the test unless Helm is requested: its program takes as long to build as Kubernetes', and the
// chart's tests run Helm's engine.
func newHelmSpace(t *testing.T) *space {
	needWeft(t)
	if os.Getenv("WEFT_E2E_HELM") == "" {
		t.Skip("WEFT_E2E_HELM=1 builds Helm and runs the tests with it")
	}
	return newSpace(t)
}

func TestHelmAcceptsTheChart(t *testing.T) {
	t.Parallel()
	s := newHelmSpace(t)
	if out, err := s.helm("lint", "--strict", helmChart); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	plain, err := s.helm("template", "weft", helmChart, "-n", "elsewhere")
	s.must(err)
	if !strings.Contains(plain, "kind: DaemonSet\n") || strings.Contains(plain, "weft-system") {
		t.Errorf("the default values render %.2000s", plain)
	}
	for option, want := range options {
		out, err := s.helm("template", "weft", helmChart, "-n", system, "--set", option)
		if err != nil || !strings.Contains(out, want) || strings.Contains(plain, want) {
			t.Errorf("%s: no %q (%v)", option, want, err)
		}
	}
	for _, typo := range []string{"vswitch.worker=2", "config.dataplane.typ=vpp", "controler.enabled=false"} {
		if _, err := s.helm("template", "weft", helmChart, "--set", typo); err == nil ||
			!strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: %v", typo, err)
		}
	}
}

// Helm takes over an installation by kubectl, upgrades a definition of an earlier version, and a changed configuration
// replaces the agents while traffic continues and the dataplane stays. The API server lets kubectl own the fields that
// Helm took over without a change, so the first change of them needs --force-conflicts again; later ones do not.
func TestHelmUpgradesDefinitionsAndConfiguration(t *testing.T) {
	if weft.OnVPP() {
		t.Skip("the cluster was installed with the dataplane VPP")
	}
	s := newHelmSpace(t)
	t.Cleanup(s.withoutHelm)
	server := s.run("server", "n2")
	load := s.endless("n1", "ping", s.addresses(server)[0].String(), "0", "5ms")
	load = s.ready(load.Name)

	const column = "/spec/versions/0/additionalPrinterColumns"
	before := s.columns()
	_, err := s.c.Kubectl(t.Context(), nil, "patch", "crd", "weftconfigs.contivpp.io", "--type=json", "-p",
		`[{"op": "remove", "path": "`+column+`"}]`)
	s.must(err)
	if now := s.columns(); now == before || before == "" {
		t.Fatalf("the definition was not changed: %q", now)
	}
	_, err = s.helm("upgrade", "--install", "weft", helmChart, "-n", system, "--take-ownership",
		"--force-conflicts", "--wait", "--timeout", "3m",
		"--set", "image.pullPolicy=Never", "--set", "image.tag="+weft.Image[strings.LastIndexByte(weft.Image, ':')+1:])
	s.must(err)
	if now := s.columns(); now != before {
		t.Errorf("Helm did not upgrade the definition: %q, want %q", now, before)
	}
	agents := s.uids("agent")
	dataplanes := s.uids("vswitch")
	change := []string{
		"upgrade", "weft", helmChart, "-n", system, "--reuse-values", "--wait", "--timeout", "3m", "--set",
		"config.log.level=debug",
	}
	if _, err := s.helm(change...); err == nil || !strings.Contains(err.Error(), "conflict") {
		t.Errorf("Helm changes what kubectl owns too: %v", err)
	}
	_, err = s.helm(append(change, "--force-conflicts")...)
	s.must(err)
	for uid := range s.uids("agent") {
		if agents[uid] {
			t.Error("the changed configuration did not replace an agent")
		}
	}
	for uid := range s.uids("vswitch") {
		if !dataplanes[uid] {
			t.Error("the changed configuration replaced a dataplane")
		}
	}
	settings, err := s.fleet("settings", "--node", "n1")
	s.must(err)
	if !strings.Contains(settings, "debug") {
		t.Errorf("settings of the agent:\n%s", settings)
	}
	s.flows([]*corev1.Pod{load})
	_, err = s.helm("upgrade", "weft", helmChart, "-n", system, "--reuse-values", "--wait", "--timeout", "3m",
		"--set", "config.log.level=info")
	s.must(err)
	s.run("after-the-upgrades", "n2")
	if _, err := s.helm("upgrade", "weft", helmChart, "-n", system, "--reuse-values", "--set",
		"vswitch.worker=2"); err == nil {
		t.Error("Helm accepts a typing error")
	}
	kept, err := s.c.Kubectl(t.Context(), nil, "get", "crd", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.annotations.helm\.sh/resource-policy}{"\n"}{end}`)
	s.must(err)
	if strings.Count(string(kept), ".contivpp.io keep\n") < 7 {
		t.Errorf("helm uninstall deletes definitions:\n%s", kept)
	}
}

// columns returns the printer columns of a definition.
func (s *space) columns() string {
	s.t.Helper()
	out, err := s.c.Kubectl(s.t.Context(), nil, "get", "crd", "weftconfigs.contivpp.io", "-o",
		"jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}")
	s.must(err)
	return string(out)
}

// uids returns the pods of a component that are not being deleted.
func (s *space) uids(component string) map[string]bool {
	s.t.Helper()
	pods, err := s.c.Client.CoreV1().Pods(system).List(s.t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=" + component,
	})
	s.must(err)
	all := map[string]bool{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			all[string(p.UID)] = true
		}
	}
	return all
}

// withoutHelm removes the record of the release, and installs Weft by its manifests again.
func (s *space) withoutHelm() {
	ctx := context.Background()
	_, err := s.c.Kubectl(ctx, nil, "delete", "secret", "-n", system, "-l", "owner=helm")
	if err == nil {
		err = weft.Weft{}.Install(ctx, s.c)
	}
	for _, set := range []string{"daemonset/weft-agent", "daemonset/weft-vswitch", "deployment/weft-controller"} {
		if err == nil {
			_, err = s.c.Kubectl(ctx, nil, "rollout", "status", set, "-n", system, "--timeout=2m")
		}
	}
	if err != nil {
		s.t.Errorf("install Weft without Helm again: %v", err)
	}
}
