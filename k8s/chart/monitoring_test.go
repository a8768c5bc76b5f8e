package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// rules is a rule file of Prometheus.
type rules struct {
	Groups []struct {
		Name  string
		Rules []alert
	}
}

type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// alerts returns all alerts of the chart.
func alerts(t *testing.T) (all []alert) {
	t.Helper()
	for _, name := range []string{"alerts.yaml", "alerts-controller.yaml"} {
		var file rules
		if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(dir, "files", name))), &file); err != nil {
			t.Fatal(err)
		}
		for _, g := range file.Groups {
			all = append(all, g.Rules...)
		}
	}
	return all
}

// dashboard is the part of a dashboard that Grafana needs.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Panels        []panel
	Templating    struct{ List []struct{ Name, Type string } }
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ RefID, Expr, LegendFormat string }
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "files", "dashboard.json"))), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	metricRow  = regexp.MustCompile("(?m)^\\| (`weft_[^|]+) \\| (\\w+) \\|")
	metricName = regexp.MustCompile(`\b(?:weft|go|process)_[a-z0-9_]+\b`)
)

// documentedMetrics returns the types of the metrics in docs/operations.md. A test of metrics compares the page with
// what is served.
func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, row := range metricRow.FindAllStringSubmatch(read(t, "../../docs/operations.md"), -1) {
		for _, name := range metricName.FindAllString(row[1], -1) {
			all[name] = row[2]
		}
	}
	if len(all) < 40 {
		t.Fatalf("%d metrics are documented", len(all))
	}
	return all
}

// known returns the documented metric that a name in an expression belongs to; "" if there is none.
func known(documented map[string]string, name string) string {
	if kind, ok := documented[name]; ok && kind != "histogram" {
		return name
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, cut := strings.CutSuffix(name, suffix); cut && documented[base] == "histogram" {
			return base
		}
	}
	return ""
}

func TestRulesAndDashboardUseAllMetricsAndNoOthers(t *testing.T) {
	documented := documentedMetrics(t)
	used := map[string]bool{}
	check := func(where, expr string) {
		for _, name := range metricName.FindAllString(expr, -1) {
			base := known(documented, name)
			if base == "" && strings.HasPrefix(name, "weft_") {
				t.Errorf("%s uses %s, which docs/operations.md does not list", where, name)
			}
			used[base] = true
		}
	}
	for _, a := range alerts(t) {
		check(a.Alert, a.Expr)
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if !used[name] {
			t.Errorf("neither an alert nor a panel shows %s", name)
		}
	}
}

var (
	section = regexp.MustCompile(`(?m)^### (Weft\w+)$`)
	command = regexp.MustCompile(`\bweftctl ([a-z-]+)`)
	use     = regexp.MustCompile(`Use:\s+"([a-z-]+)`)
)

// Each alert has a section with its meaning, a command and the remedy, and each section an alert.
func TestEachAlertHasARunbook(t *testing.T) {
	page := read(t, "../../docs/operations.md")
	_, part, _ := strings.Cut(page, "\n## Alerts\n")
	part, _, _ = strings.Cut(part, "\n## ")
	sections := map[string]string{}
	at := section.FindAllStringSubmatchIndex(part, -1)
	for i, m := range at {
		end := len(part)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		sections[part[m[2]:m[3]]] = part[m[1]:end]
	}
	commands := weftctlCommands(t)
	for _, a := range alerts(t) {
		text, there := sections[a.Alert]
		delete(sections, a.Alert)
		if !there || strings.Count(text, "\n    ") == 0 || len(strings.Split(strings.TrimSpace(text), "\n\n")) < 3 {
			t.Errorf("%s has no section with meaning, command and remedy in docs/operations.md", a.Alert)
		}
		for _, c := range command.FindAllStringSubmatch(text, -1) {
			if !commands[c[1]] {
				t.Errorf("the section of %s names weftctl %s, which does not exist", a.Alert, c[1])
			}
		}
		want := "https://github.com/weftnet/weft/blob/main/docs/operations.md#" + strings.ToLower(a.Alert)
		if a.Annotations["runbook_url"] != want || a.Annotations["summary"] == "" ||
			a.Annotations["description"] == "" ||
			len(a.Annotations) != 3 {
			t.Errorf("%s: annotations %q", a.Alert, a.Annotations)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: severity %q", a.Alert, a.Labels["severity"])
		}
	}
	for name := range sections {
		t.Errorf("docs/operations.md has a section for %s, which is not an alert", name)
	}
}

func weftctlCommands(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../../ctl/*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, file := range files {
		for _, m := range use.FindAllStringSubmatch(read(t, file), -1) {
			all[m[1]] = true
		}
	}
	return all
}

func TestDashboardIsValid(t *testing.T) {
	d := readDashboard(t)
	if d.Title != "Weft" || d.UID != "weft" || d.SchemaVersion == 0 || len(d.Templating.List) != 2 {
		t.Errorf("dashboard %q, %q, schema %d, %d variables", d.Title, d.UID, d.SchemaVersion, len(d.Templating.List))
	}
	ids := map[int]bool{}
	cells := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" || p.GridPos.W < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: %+v", p.ID, p.Title, p.GridPos)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("panels %q and %q overlap", other, p.Title)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %q of type %s has %d targets", p.Title, p.Type, len(p.Targets))
		}
	}
	for _, subject := range []string{
		"Ready agents", "Addresses by pool", "Memif devices", "Drift", "Tunnels: drops", "Links of the node: drops",
		"Reasons of drops and errors", "Leader of the controller",
	} {
		if !slices.ContainsFunc(d.Panels, func(p panel) bool { return p.Title == subject }) {
			t.Errorf("no panel %q", subject)
		}
	}
}

// promtool runs promtool in a directory with the rule files.
func promtool(t *testing.T, args []string, files map[string]string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool (Debian's package prometheus)")
	}
	in := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(in, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

// Each alert fires for the series of its test, and for no series of a healthy node.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	tests := read(t, "testdata/alerts_test.yaml")
	files := map[string]string{"alerts_test.yaml": tests}
	for _, name := range []string{"alerts.yaml", "alerts-controller.yaml"} {
		files[name] = read(t, filepath.Join(dir, "files", name))
	}
	for _, a := range alerts(t) {
		for _, what := range []string{" fires", " is quiet"} {
			if !strings.Contains(tests, "  - name: "+a.Alert+what+"\n") {
				t.Errorf("no test that %s%s", a.Alert, what)
			}
		}
	}
	promtool(t, []string{"check", "rules", "alerts.yaml", "alerts-controller.yaml"}, files)
	promtool(t, []string{"test", "rules", "alerts_test.yaml"}, files)
}

func TestQueriesOfTheDashboardAreValid(t *testing.T) {
	var b strings.Builder
	b.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	variables := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	for _, p := range readDashboard(t).Panels {
		for i, target := range p.Targets {
			_, _ = fmt.Fprintf(&b, "      - {record: 'panel:%d:%d', expr: '%s'}\n", p.ID, i,
				strings.ReplaceAll(variables.Replace(target.Expr), "'", "''"))
		}
	}
	if strings.Contains(b.String(), "$") {
		t.Error("a query uses an unknown variable")
	}
	promtool(t, []string{"check", "rules", "dashboard.yaml"}, map[string]string{"dashboard.yaml": b.String()})
}

// monitoringOn are the values that switch everything on.
var monitoringOn = map[string]any{
	"monitoring.podMonitor.enabled": true, "monitoring.podMonitor.labels": map[string]any{"release": "prometheus"},
	"monitoring.rules.enabled": true, "monitoring.dashboard.enabled": true,
}

// monitoring renders the objects of monitoring, by kind and name.
func monitoring(t *testing.T, changes map[string]any) map[string]map[string]any {
	t.Helper()
	objects := map[string]map[string]any{}
	for _, document := range bytes.Split([]byte(texts(t, changes)["monitoring.yaml"]), []byte("\n---\n")) {
		var o map[string]any
		if err := yaml.UnmarshalStrict(document, &o); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if o != nil {
			objects[fmt.Sprintf("%s/%s", o["kind"], o["metadata"].(map[string]any)["name"])] = o
		}
	}
	return objects
}

func TestMonitoringIsOffByDefault(t *testing.T) {
	if objects := monitoring(t, nil); len(objects) != 0 {
		t.Errorf("objects %v", slices.Sorted(maps.Keys(objects)))
	}
	for _, name := range []string{"weft.yaml", "weft-vpp.yaml"} {
		if text := read(t, filepath.Join("../manifests", name)); strings.Contains(text, "monitoring.coreos.com") ||
			strings.Contains(text, "HOST_IP") {
			t.Errorf("%s needs the CRDs of Prometheus Operator, or listens on the node's address", name)
		}
	}
	one := monitoring(t, map[string]any{"monitoring.rules.enabled": true, "controller.enabled": false})
	if names := slices.Sorted(maps.Keys(one)); !slices.Equal(names, []string{"PrometheusRule/weft-agent"}) {
		t.Errorf("objects %v", names)
	}
}

func TestMonitoringHasTheRulesAndTheDashboard(t *testing.T) {
	objects := monitoring(t, monitoringOn)
	want := []string{
		"ConfigMap/weft-dashboard", "PodMonitor/weft-agent", "PodMonitor/weft-controller", "PrometheusRule/weft-agent",
		"PrometheusRule/weft-controller",
	}
	if names := slices.Sorted(maps.Keys(objects)); !slices.Equal(names, want) {
		t.Fatalf("objects %v", names)
	}
	for object, file := range map[string]string{
		"PrometheusRule/weft-agent":      "alerts.yaml",
		"PrometheusRule/weft-controller": "alerts-controller.yaml",
	} {
		var spec map[string]any
		if err := yaml.Unmarshal([]byte(read(t, filepath.Join(dir, "files", file))), &spec); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(spec, objects[object]["spec"]); diff != "" {
			t.Errorf("%s: %s", object, diff)
		}
	}
	data := objects["ConfigMap/weft-dashboard"]["data"].(map[string]any)["weft.json"].(string)
	if strings.TrimSpace(data) != strings.TrimSpace(read(t, filepath.Join(dir, "files", "dashboard.json"))) {
		t.Error("the dashboard of the ConfigMap is not the file")
	}
	labels := objects["PodMonitor/weft-agent"]["metadata"].(map[string]any)["labels"].(map[string]any)
	if labels["release"] != "prometheus" {
		t.Errorf("labels %v", labels)
	}
}

// The ports of the PodMonitors exist, and the programs listen where Prometheus reaches them.
func TestPodMonitorsReachTheirPods(t *testing.T) {
	c := rendered(t, monitoringOn)
	agent := c.sets["weft-agent"].Spec.Template.Spec.Containers[0]
	if len(agent.Ports) != 1 || agent.Ports[0].Name != "metrics" || agent.Ports[0].ContainerPort != 9465 {
		t.Errorf("ports %v", agent.Ports)
	}
	env := map[string]string{}
	for _, e := range agent.Env {
		env[e.Name] = e.Value
	}
	if env["WEFT_HTTP_LISTEN"] != "$(HOST_IP):9465" {
		t.Errorf("environment %v", env)
	}
	controller := c.controller.Spec.Template.Spec.Containers[0]
	if !slices.Contains(controller.Args, "--health-address=$(HOST_IP):9879") ||
		controller.LivenessProbe.HTTPGet.Host != "" || controller.ReadinessProbe.HTTPGet.Host != "" {
		t.Errorf("arguments %q, probes of %q", controller.Args, controller.LivenessProbe.HTTPGet.Host)
	}
	off := rendered(t, nil).controller.Spec.Template.Spec.Containers[0]
	if !slices.Contains(off.Args, "--health-address=127.0.0.1:9879") || off.LivenessProbe.HTTPGet.Host != "127.0.0.1" {
		t.Errorf("arguments %q, probes of %q", off.Args, off.LivenessProbe.HTTPGet.Host)
	}
}
