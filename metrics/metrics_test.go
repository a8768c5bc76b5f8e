package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

// names are the metrics that operators rely on, with their labels.
var names = []string{
	`weft_cni_request_duration_seconds_bucket{code="0",verb="ADD",le="0.25"} 1`,
	`weft_event_duration_seconds_sum{event="AddPod",phase="commit"} 2`,
	`weft_event_handler_duration_seconds_sum{event="AddPod",handler="ipnet"} 1`,
	`weft_event_queue_depth 3`,
	`weft_event_queue_wait_seconds_sum 0.5`,
	`weft_transaction_operations_total{kind="vpp.route",result="applied",verb="create"} 1`,
	`weft_transaction_rollbacks_total{result="undone"} 1`,
	`weft_transaction_rollbacks_total{result="incomplete"} 0`,
	`weft_objects{kind="vpp.route",phase="InSync"} 4`,
	`weft_drift_total{kind="vpp.route"} 1`,
	`weft_drift_total{kind="vpp.vrf"} 0`,
	`weft_dataplane_connected 1`,
	`weft_ready 1`,
	`weft_condition{condition="started"} 1`,
	`weft_condition{condition="uplink"} 0`,
	`weft_dataplane_reconnects_total 1`,
	`weft_quarantined_attachments 2`,
	`weft_rejected_announcements 3`,
	`weft_dataplane_replay_seconds_count 1`,
	`weft_addresses{pool="p",state="used"} 1`,
	`weft_addresses{pool="p",state="leased"} 2`,
	`weft_addresses{pool="p",state="cooling"} 3`,
	`weft_addresses{pool="p",state="free"} 4`,
	`weft_devices{state="free"} 5`,
	`weft_kubelet_registrations_total{result="ok"} 6`,
	`weft_delete_queue_length 7`,
	`weft_pod_events_dropped_total 8`,
	`weft_interface_rx_bytes_total{interface="eth0",namespace="shop",pod="cart",type="tap"} 22`,
	`weft_interface_rx_packets_total{interface="eth0",namespace="shop",pod="cart",type="tap"} 2`,
	`weft_interface_rx_drops_total{interface="eth0",namespace="shop",pod="cart",type="tap"} 6`,
	`weft_interface_tx_bytes_total{interface="eth0",namespace="shop",pod="cart",type="tap"} 44`,
	`weft_interface_tx_packets_total{interface="eth0",namespace="shop",pod="cart",type="tap"} 4`,
	`weft_interface_tx_drops_total{interface="eth0",namespace="shop",pod="cart",type="tap"} 8`,
	`weft_interface_rx_packets_total{interface="a?b",namespace="",pod="",type="veth"} 1`,
	`weft_memif_connected{interface="m1",namespace="shop",pod="cart"} 1`,
	`weft_dataplane_errors_total{node="ip4-input",reason="time_expired"} 9`,
	`weft_state_commit_seconds_count 1`,
	`weft_trace_spans_total{result="exported"} 3`,
	`weft_link_rx_bytes_total{link="host"} 2`,
	`weft_link_tx_drops_total{link="host"} 6`,
	`weft_tunnel_rx_packets_total{node="worker-2"} 7`,
	`weft_tunnel_tx_drops_total{node="worker-2"} 12`,
	`weft_policy_packets_total{action="deny",direction="ingress",policy="NetworkPolicy shop/db"} 4`,
	`weft_series_dropped{metric="weft_condition"} 1`,
}

func fullState() State {
	queued := 7
	yes := true
	dropped := uint64(8)
	eth0 := Interface{Namespace: "shop", Pod: "cart", Name: "eth0", Type: "tap",
		RxPackets: 1, RxBytes: 11, RxDrops: 3, TxPackets: 2, TxBytes: 22, TxDrops: 4}
	return State{
		QueueDepth:  3,
		Quarantined: 2,
		Rejections:  3,
		DeleteQueue: &queued,
		Connected:   true,
		Ready:       true,
		Conditions:  map[string]bool{"started": true, "uplink": false},
		Objects:     map[string]map[string]int{"vpp.route": {"InSync": 4}},
		Addresses:   map[string]Addresses{"p": {Used: 1, Leased: 2, Cooling: 3, Free: 4}},
		Links:       map[string]Traffic{"host": {1, 2, 3, 4, 5, 6}},
		Tunnels:     map[string]Traffic{"worker-2": {7, 8, 9, 10, 11, 12}},
		Errors:      []Error{{Node: "ip4-input", Reason: "time_expired", Count: 9}},
		Policies:    []PolicyCount{{PolicySeries{"NetworkPolicy shop/db", "ingress", "deny"}, 4}},
		Devices:     map[string]int{"free": 5}, Registrations: map[string]uint64{"ok": 6}, EventsDropped: &dropped,
		Interfaces: []Interface{
			eth0, eth0, // two sandboxes of one pod
			{Name: "a\xffb", Type: "veth", RxPackets: 1},
			{Namespace: "shop", Pod: "cart", Name: "m1", Type: "memif", Connected: &yes},
		},
	}
}

func scrape(t *testing.T, m http.Handler) (int, string) {
	t.Helper()
	answer := httptest.NewRecorder()
	m.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return answer.Code, answer.Body.String()
}

func newMetrics(read func(context.Context) State) *Metrics {
	return New(Config{
		Version: "weft v1",
		Kinds:   []string{"vpp.route", "vpp.vrf"},
		Read:    read,
		Log:     slog.New(slog.DiscardHandler),
	})
}

func TestAllMetricsAreServed(t *testing.T) {
	state := fullState()
	for n := range maxConditions - 1 {
		state.Conditions[fmt.Sprint("z", n)] = true // one more than the bound
	}
	m := newMetrics(func(context.Context) State { return state })
	m.Request("ADD", "0", 200*time.Millisecond)
	m.Event(Event{Name: "AddPod", Waited: time.Second / 2,
		Phases:   map[string]time.Duration{"commit": 2 * time.Second},
		Handlers: map[string]time.Duration{"ipnet": time.Second}})
	m.Operation("vpp.route", "create", "applied")
	m.Rollback(RolledBack)
	m.Drift("vpp.route")
	m.Reconnected()
	m.Replayed(time.Second)
	m.Committed(time.Second)
	m.Spans("exported", 3)
	code, text := scrape(t, m)
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, text)
	}
	for _, line := range names {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
	plain := regexp.MustCompile(`^(weft|go|process)_[a-z_]+(\{|$| )`)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && !plain.MatchString(line) {
			t.Errorf("a metric without the prefix: %s", line)
		}
		if help, ok := strings.CutPrefix(line, "# HELP "); ok && len(strings.Fields(help)) < 3 {
			t.Errorf("a metric without help: %s", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestNilFieldsHaveNoMetrics(t *testing.T) {
	_, text := scrape(t, newMetrics(func(context.Context) State { return State{} }))
	for _, name := range []string{
		"weft_delete_queue_length", "weft_pod_events", "weft_devices", "weft_kubelet", "weft_memif", "weft_interface",
		"weft_dataplane_errors", "weft_policy",
	} {
		if strings.Contains(text, name) {
			t.Errorf("%s is served", name)
		}
	}
}

func TestTooManyConcurrentScrapesAreRejected(t *testing.T) {
	begun := make(chan struct{})
	release := make(chan struct{})
	m := newMetrics(func(context.Context) State {
		begun <- struct{}{}
		<-release
		return State{}
	})
	ended := make(chan int)
	for range maxScrapes {
		go func() { code, _ := scrape(t, m); ended <- code }()
		<-begun
	}
	another := make(chan int, 1)
	go func() { code, _ := scrape(t, m); another <- code }()
	select {
	case code := <-another:
		if code != http.StatusServiceUnavailable {
			t.Errorf("another scrape has status %d", code)
		}
	case <-begun:
		t.Error("another scrape has begun")
	}
	close(release)
	for range maxScrapes {
		if code := <-ended; code != http.StatusOK {
			t.Errorf("a scrape has status %d", code)
		}
	}
}
