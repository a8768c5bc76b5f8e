package agent

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

func TestMetricsCountRequestsAndEvents(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{HTTP: endpointAddress, CoolDown: time.Hour})
	l.metric("weft_dataplane_connected", is(1))
	l.metric(`weft_event_duration_seconds_count{event="Resynchronize",phase="total"}`, atLeast(1))
	l.metric(`weft_addresses{pool="pods4",state="used"}`, is(0))
	free := l.now(`weft_addresses{pool="pods4",state="free"}`)
	saved := l.now("weft_state_commit_seconds_count")
	taps := l.now(`weft_objects{kind="vpp.interface",phase="InSync"}`)

	a := l.pod("a")
	result := l.cni("ADD", a, nil)
	for _, m := range []string{
		`weft_cni_request_duration_seconds_count{code="0",verb="ADD"}`,
		`weft_event_duration_seconds_count{event="AddPod",phase="total"}`,
		`weft_event_duration_seconds_count{event="AddPod",phase="commit"}`,
		`weft_event_duration_seconds_count{event="AddPod",phase="save"}`,
		`weft_event_handler_duration_seconds_count{event="AddPod",handler="podmanager"}`,
		`weft_event_handler_duration_seconds_count{event="AddPod",handler="ipnet"}`,
		`weft_addresses{pool="pods4",state="used"}`,
	} {
		l.metric(m, is(1))
	}
	l.metric(`weft_transaction_operations_total{kind="vpp.interface",result="applied",verb="create"}`, atLeast(1))
	l.metric(`weft_objects{kind="vpp.interface",phase="InSync"}`, is(taps+1))
	l.metric(`weft_addresses{pool="pods4",state="free"}`, is(free-1))
	l.metric("weft_state_commit_seconds_count", atLeast(saved+1))
	l.metric("weft_event_queue_wait_seconds_count", atLeast(2))

	l.check(a, result)
	l.metric(`weft_cni_request_duration_seconds_count{code="0",verb="CHECK"}`, is(1))
	l.cni("STATUS", a, nil)
	l.metric(`weft_cni_request_duration_seconds_count{code="0",verb="STATUS"}`, is(1))
	l.cni("GC", a, map[string]any{
		"cni.dev/valid-attachments": []any{map[string]string{"containerID": a.ContainerID, "ifname": "eth0"}},
	})
	l.metric(`weft_cni_request_duration_seconds_count{code="0",verb="GC"}`, is(1))
	if err := l.call(t.Context(), "ADD", l.pod("b"), "/nowhere"); err == nil {
		t.Fatal("an ADD without a namespace succeeds")
	}
	l.metric(`weft_cni_request_duration_seconds_count{code="8",verb="ADD"}`, is(1))

	l.cni("DEL", a, nil)
	l.metric(`weft_cni_request_duration_seconds_count{code="0",verb="DEL"}`, is(1))
	l.metric(`weft_event_duration_seconds_count{event="DeletePod",phase="total"}`, is(1))
	l.metric(`weft_addresses{pool="pods4",state="cooling"}`, is(1))
	l.metric(`weft_objects{kind="vpp.interface",phase="InSync"}`, is(taps))
}

func TestMetricsCountUndoneAndRepairedOperations(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{HTTP: endpointAddress})
	l.metric(`weft_transaction_rollbacks_total{result="undone"}`, is(0))
	a := l.pod("a")
	netnstest.Do(t, a.Netns, func() { occupyDefaultRoute(t) })
	if err := l.call(t.Context(), "ADD", a, a.Netns); err == nil {
		t.Fatal("an ADD with an existing default route succeeds")
	}
	l.metric(`weft_transaction_rollbacks_total{result="undone"}`, is(1))
	l.metric(`weft_transaction_operations_total{kind="linux.route",result="not_applied",verb="create"}`, atLeast(1))
	l.metric(`weft_cni_request_duration_seconds_count{code="105",verb="ADD"}`, is(1))

	b := l.pod("b")
	l.cni("ADD", b, nil)
	l.metric(`weft_drift_total{kind="linux.route"}`, is(0))
	netnstest.Do(t, b.Netns, func() { loseDefaultRoute(t) })
	if _, err := l.Weftctl(t.Context(), "resync", "downstream"); err != nil {
		t.Fatal(err)
	}
	l.metric(`weft_drift_total{kind="linux.route"}`, atLeast(1))
}

// occupyDefaultRoute adds a default route through another link of the sandbox.
func occupyDefaultRoute(t *testing.T) {
	occupyRoute(t, &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)})
}

// occupyRoute adds a route that Weft would add.
func occupyRoute(t *testing.T, to *net.IPNet) {
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "other0"}, Mode: netlink.TUNTAP_MODE_TAP}
	err := netlink.LinkAdd(tap)
	if err == nil {
		err = netlink.LinkSetUp(tap)
	}
	if err == nil {
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: tap.Index, Dst: to})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func loseDefaultRoute(t *testing.T) {
	if err := netlink.RouteDel(&netlink.Route{
		Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)},
	}); err != nil {
		t.Fatal(err)
	}
}

func TestMetricsOfPodInterfaces(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{HTTP: endpointAddress, Memifs: 4})
	l.metric(`weft_devices{state="free"}`, is(4))
	l.metric(`weft_kubelet_registrations_total{result="ok"}`, atLeast(1))
	a := l.pod("a")
	b := l.pod("b")
	a.Namespace = "lab"
	given, err := l.Admit(t.Context(), a, kubelettest.Container{Name: "vnf", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	l.metric(`weft_devices{state="allocated"}`, is(1))
	ofA := l.addresses(l.cni("ADD", a, memifOfA))
	ofB := l.addresses(l.cni("ADD", b, nil))
	l.metric(`weft_devices{state="granted"}`, is(1))

	eth0 := fmt.Sprintf(`{interface="eth0",namespace="lab",pod="a",type=%q}`, dataplane.Tap())
	moves := map[string]func(){
		"rx_packets": func() { l.mustReach(b, ofA[0]) },
		"rx_bytes":   func() { l.mustReach(b, ofA[0]) },
		"tx_packets": func() { l.mustReach(a, ofB[0]) },
		"tx_bytes":   func() { l.mustReach(a, ofB[0]) },
		"tx_drops":   func() { netnstest.Do(t, a.Netns, func() { sendSpoofed(t) }) },
	}
	for _, what := range slices.Sorted(maps.Keys(moves)) {
		name := "weft_interface_" + what + "_total" + eth0
		before := l.now(name)
		moves[what]()
		l.metric(name, atLeast(before+1))
	}
	m1 := `{interface="m1",namespace="lab",pod="a",type="memif"}`
	l.metric(`weft_memif_connected{interface="m1",namespace="lab",pod="a"}`, is(0))
	socket := filepath.Join(given[0].Mounts[0].HostPath, "memif.sock")
	program, err := memif.Connect(t.Context(), memif.ClientConfig{
		Socket:   socket,
		ID:       1,
		Secret:   memif.Secret(given[0].Envs["MEMIF_SECRET"]),
		RingSize: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Release()
	l.metric(`weft_memif_connected{interface="m1",namespace="lab",pod="a"}`, is(1))
	netnstest.Do(t, b.Netns, func() { sendDatagrams(t, ofA[2], 64) }) // its client reads none of them
	l.metric("weft_interface_rx_packets_total"+m1, atLeast(1))
	l.metric("weft_interface_rx_drops_total"+m1, atLeast(1))

	l.cni("DEL", a, nil)
	until(t, "series of a deleted pod", func() error {
		values, err := scrape(t.Context())
		for name := range values {
			if strings.Contains(name, `pod="a"`) {
				return errors.Join(err, errors.New(name))
			}
		}
		return err
	})
}

// sendSpoofed sends a packet with a foreign source address from the calling thread's namespace.
func sendSpoofed(t *testing.T) {
	t.Helper()
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	stolen := net.IPv4(192, 0, 2, 77)
	address := &netlink.Addr{IPNet: &net.IPNet{IP: stolen, Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrAdd(link, address); err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: stolen}, &net.UDPAddr{IP: net.IPv4(10, 1, 0, 200), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Write([]byte("not an HTTP request"))
	if err := errors.Join(err, conn.Close(), netlink.AddrDel(link, address)); err != nil {
		t.Fatal(err)
	}
}

// sendDatagrams sends datagrams from the calling thread's namespace.
func sendDatagrams(t *testing.T, to netip.Addr, times int) {
	conn, err := net.Dial("udp", netip.AddrPortFrom(to, 9).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range times {
		if _, err := conn.Write([]byte("not an HTTP request")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMetricsShowThatTheDataplaneHangs(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{HTTP: endpointAddress})
	before := l.now("weft_dataplane_reconnects_total")
	l.metric("weft_dataplane_connected", is(1))
	thaw := l.freeze()
	l.metric("weft_dataplane_connected", is(0))
	l.answers("/readyz", http.StatusServiceUnavailable, "weft-agent is not ready (dataplane: ")
	thaw()
	l.metric("weft_dataplane_connected", is(1))
	l.metric("weft_dataplane_reconnects_total", atLeast(before+1))
	l.metric("weft_dataplane_replay_seconds_count", atLeast(1))
	l.answers("/readyz", http.StatusOK, "ready\n")
}

func TestMetricsShowWaitingRequests(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{HTTP: endpointAddress})
	pods := []*node.Pod{l.pod("a"), l.pod("b")}
	waits := map[string]bool{"weft_event_queue_depth": true, `weft_addresses{pool="pods4",state="leased"}`: true}
	for name := range waits {
		l.metric(name, is(0))
	}
	// An event hangs until the agent notices that the dataplane does, after some seconds; a busy machine may miss that
	// time.
	for attempt := 0; attempt < 5 && len(waits) > 0; attempt++ {
		l.lookWhileOneHangs(pods, waits)
	}
	if len(waits) > 0 {
		t.Errorf("never above 0: %v", slices.Sorted(maps.Keys(waits)))
	}
	l.metric("weft_event_queue_depth", is(0))
}

// lookWhileOneHangs adds pods while the dataplane hangs, and removes metrics from waits that are above 0 in that time.
func (l *lab) lookWhileOneHangs(pods []*node.Pod, waits map[string]bool) {
	thaw := l.freeze()
	var calls sync.WaitGroup
	for _, p := range pods {
		calls.Go(func() { _ = l.call(l.Context(), "ADD", p, p.Netns) }) // an error is allowed
	}
	until(l.T, "the agent notices", func() error {
		values, err := scrape(l.Context())
		maps.DeleteFunc(waits, func(name string, _ bool) bool { return values[name] > 0 })
		if err == nil && len(waits) > 0 && values["weft_dataplane_connected"] == 1 {
			err = errors.New("the agent has not noticed")
		}
		return err
	})
	thaw()
	calls.Wait()
	if err := l.AwaitReady(l.Context()); err != nil {
		l.Fatal(err)
	}
	for _, p := range pods {
		l.cni("DEL", p, nil)
	}
}

func TestEndpointServesBeforeTheSocketExists(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{HTTP: endpointAddress})
	a := l.pod("a")
	l.cni("ADD", a, nil)
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := get(t.Context(), "/healthz"); err == nil {
		t.Error("the endpoint serves after the agent has ended")
	}
	l.cni("DEL", a, nil) // queued
	thaw := l.freeze()
	if err := l.BeginAgent(); err != nil {
		t.Fatal(err)
	}
	until(t, "the agent's socket", func() error {
		conn, err := net.Dial("unix", l.Socket())
		if err != nil {
			return err
		}
		return conn.Close()
	})
	code, text, err := get(t.Context(), "/readyz") // only once
	if err != nil || code != http.StatusServiceUnavailable ||
		!strings.Contains(text, "started: the first resync has not ended") {
		t.Errorf("the endpoint returns %d %q, %v", code, text, err)
	}
	l.answers("/healthz", http.StatusServiceUnavailable, "dataplane: not connected")
	l.metric("weft_delete_queue_length", is(1))
	l.metric("weft_dataplane_connected", is(0))
	thaw()
	if err := l.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.metric("weft_delete_queue_length", is(0))
	l.answers("/healthz", http.StatusOK, "ready\n")
}

// answers waits for a response with the code and the text.
func (l *lab) answers(path string, code int, words string) {
	l.Helper()
	until(l.T, path, func() error {
		have, text, err := get(l.Context(), path)
		if err != nil || have != code || !strings.Contains(text, words) {
			return fmt.Errorf("the response is %d %q, %w", have, text, err)
		}
		return nil
	})
}

// memifOfA requests a memif beside the main interface.
var memifOfA = map[string]any{"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{
	"contivpp.io/custom-if": "m1/memif",
}}}
