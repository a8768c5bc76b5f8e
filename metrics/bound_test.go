package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// documented are the metrics in the tables of docs/operations.md.
type documented struct {
	kind, labels string
	bound        int
}

var (
	tableRow   = regexp.MustCompile("(?m)^\\| (`weft_[^|]+) \\| (\\w+) \\| ([^|]*)\\| (\\d+) \\|")
	metricName = regexp.MustCompile("`(weft_[a-z_]+)`")
)

func readTables(t *testing.T) map[string]documented {
	t.Helper()
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]documented)
	same := ""
	for _, row := range tableRow.FindAllStringSubmatch(string(page), -1) {
		bound, err := strconv.Atoi(row[4])
		if err != nil {
			t.Fatal(err)
		}
		labels := strings.NewReplacer("`", "", " ", "").Replace(row[3])
		if labels == "thesame" {
			labels = same
		}
		same = labels
		for _, name := range metricName.FindAllStringSubmatch(row[1], -1) {
			all[name[1]] = documented{row[2], labels, bound}
		}
	}
	return all
}

// families returns the label sets of the metrics of a scrape, by metric without the suffixes of histograms.
func families(text string) (types map[string]string, sets map[string]map[string]bool) {
	types = map[string]string{}
	sets = map[string]map[string]bool{}
	for line := range strings.Lines(text) {
		if is, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(strings.TrimSpace(is), " ")
			types[name] = kind
			sets[name] = map[string]bool{}
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		series := line[:strings.LastIndexByte(line, ' ')]
		name, labels, _ := strings.Cut(series, "{")
		if base, isCount := strings.CutSuffix(name, "_count"); isCount && types[base] == "histogram" {
			name = base
		}
		if sets[name] != nil { // else a bucket or a sum
			sets[name][labels] = true
		}
	}
	return types, sets
}

var labelName = regexp.MustCompile(`(?:^|,)([a-z]+)="`)

// observeAll calls every observing method with a name.
func observeAll(m *Metrics, name string) {
	m.Request(name, name, time.Second)
	m.Request("ADD", name, time.Second)
	m.Event(Event{
		Name:     name,
		Phases:   map[string]time.Duration{name: 1, "commit": 1},
		Handlers: map[string]time.Duration{name: 1},
	})
	m.Event(Event{
		Name:     "AddPod",
		Phases:   map[string]time.Duration{name: 1},
		Handlers: map[string]time.Duration{name: 1},
	})
	m.Operation(name, name, name)
	m.Operation("vpp.route", "create", name)
	m.Rollback(name)
	m.Drift(name)
	m.Spans(name, 1)
}

// hostile are names that no valid object has.
func hostile() []string {
	var names []string
	for n := range 5000 {
		name := fmt.Sprintf("n%d", n)
		switch n % 5 {
		case 0:
			name += "\xff\xfe\x00\n\"\\{}"
		case 1:
			name += strings.Repeat("é", 4000)
		case 2:
			name = strings.Repeat("x", 253) + name // all the same once they are cut
		case 3:
			name = `",le="+Inf"} 1` + "\n" + name
		}
		names = append(names, name)
	}
	return names
}

func hostileState(names []string) State {
	s := State{
		Conditions:    map[string]bool{},
		Objects:       map[string]map[string]int{"k": {}},
		Addresses:     map[string]Addresses{},
		Devices:       map[string]int{},
		Registrations: map[string]uint64{}, Links: map[string]Traffic{}, Tunnels: map[string]Traffic{},
	}
	yes := true
	for _, name := range names {
		s.Conditions[name] = true
		s.Objects[name] = map[string]int{name: 1}
		s.Addresses[name] = Addresses{}
		s.Objects["k"][name] = 1
		s.Devices[name] = 1
		s.Registrations[name] = 1
		s.Links[name] = Traffic{}
		s.Tunnels[name] = Traffic{RxPackets: 1}
		s.Interfaces = append(s.Interfaces, Interface{
			Namespace: name,
			Pod:       name,
			Name:      name,
			Type:      "memif",
			Connected: &yes,
		})
		s.Errors = append(s.Errors, Error{name, name, 1})
		s.Policies = append(s.Policies, PolicyCount{PolicySeries{name, name, name}, 1})
	}
	return s
}

// The bound of each metric holds against 5,000 hostile names in each label, and the page lists exactly the metrics that
// are served.
func TestLabelSetsAreBoundedAsDocumented(t *testing.T) {
	names := hostile()
	state := hostileState(names)
	one := uint64(1)
	many := 1
	state.EventsDropped = &one
	state.DeleteQueue = &many
	m := New(Config{
		Version: names[1],
		Read:    func(context.Context) State { return state },
		Log:     slog.New(slog.DiscardHandler),
	})
	c := NewController("weft v1", slog.New(slog.DiscardHandler))
	for _, name := range names {
		observeAll(m, name)
		c.Reconciled(name, time.Second, errors.New(name))
	}
	want := readTables(t)
	served := map[string]bool{}
	for what, handler := range map[string]http.Handler{"agent": m, "controller": c} {
		code, text := scrape(t, handler)
		if code != http.StatusOK || !utf8.ValidString(text) || len(text) > 64<<20 {
			t.Fatalf("%s: status %d, %d bytes", what, code, len(text))
		}
		types, sets := families(text)
		for name, of := range sets {
			if !strings.HasPrefix(name, "weft_") {
				continue
			}
			served[name] = true
			d, known := want[name]
			if !known {
				t.Errorf("docs/operations.md has no row for %s", name)
			}
			if len(of) == 0 || len(of) > d.bound || types[name] != d.kind {
				t.Errorf("%s %s has %d label sets, documented are %s and at most %d", types[name], name, len(of),
					d.kind, d.bound)
			}
			checkLabels(t, name, of, d.labels)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !served[name] {
			t.Errorf("docs/operations.md has a row for %s, which is not served", name)
		}
	}
}

func checkLabels(t *testing.T, name string, sets map[string]bool, want string) {
	t.Helper()
	wanted := strings.Split(want, ",")
	slices.Sort(wanted)
	for set := range sets {
		var have []string
		for _, l := range labelName.FindAllStringSubmatch(strings.ReplaceAll(set, `\"`, ""), -1) {
			have = append(have, l[1])
		}
		if strings.Join(have, ",") != strings.Join(wanted, ",") {
			t.Errorf("%s{%s has the labels %q, documented are %q", name, set, have, wanted)
		}
		return
	}
}

func TestMetricsAboveABoundAreReported(t *testing.T) {
	state := State{Tunnels: map[string]Traffic{}}
	for n := range 5000 {
		name := fmt.Sprintf("n%04d", n)
		state.Interfaces = append(state.Interfaces, Interface{Pod: name})
		state.Tunnels[name] = Traffic{RxPackets: 1}
	}
	_, text := scrape(t, newMetrics(func(context.Context) State { return state }))
	for _, line := range []string{
		fmt.Sprintf(`weft_series_dropped{metric="weft_interface"} %d`, 5000-maxInterfaces),
		fmt.Sprintf(`weft_tunnel_rx_packets_total{node="other"} %d`, 5000-maxPeers+1),
		`weft_tunnel_rx_packets_total{node="n0254"} 1`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%s is missing", line)
		}
	}
	m := newMetrics(func(context.Context) State { return State{} })
	for _, name := range hostile() {
		m.Drift(name)
	}
	if _, text := scrape(t, m); !strings.Contains(text, `weft_drift_total{kind="other"}`) {
		t.Error("no kind is other")
	}
}

func TestObservingAKnownLabelDoesNotAllocate(t *testing.T) {
	v := newValues(4)
	v.of("ADD")
	if n := testing.AllocsPerRun(100, func() { v.of("ADD") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestControllerReportsItsWork(t *testing.T) {
	c := NewController("weft v1", slog.New(slog.DiscardHandler))
	c.Leads(true)
	c.VNIs(3)
	c.Endpoints(4)
	c.Freed(2, 1)
	c.Reconciled("IPPool", time.Second, nil)
	c.Reconciled("IPPool", time.Second, io.EOF)
	_, text := scrape(t, c)
	for _, line := range []string{
		`weft_controller_leader 1`, `weft_controller_elections_total 1`, `weft_controller_vnis 3`,
		`weft_controller_endpoints 4`,
		`weft_controller_freed_total{what="block"} 2`, `weft_controller_freed_total{what="loan"} 1`,
		`weft_controller_reconcile_duration_seconds_count{kind="IPPool",result="ok"} 1`,
		`weft_controller_reconcile_duration_seconds_count{kind="IPPool",result="error"} 1`,
		`weft_build_info{goversion="`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%s is missing", line)
		}
	}
	c.Leads(false)
	if _, text = scrape(t, c); !strings.Contains(text, "weft_controller_leader 0\n") ||
		!strings.Contains(text, "weft_controller_vnis 0\n") ||
		!strings.Contains(text, "weft_controller_endpoints 0\n") {
		t.Errorf("a replica that lost its lease reports its last work:\n%s", text)
	}
}
