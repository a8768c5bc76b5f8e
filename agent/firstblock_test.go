package agent

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// failedEvents returns the failed events of the running agent.
func (l *lab) failedEvents() string {
	l.Helper()
	output, err := l.Weftctl(l.Context(), "events", "--failed")
	if err != nil {
		l.Fatal(err)
	}
	return output
}

func TestFirstPodOfANetworkSucceedsWithoutAFailedEvent(t *testing.T) {
	server := k8stest.New(t)
	server.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.IPPoolSpec{CIDR: "10.9.0.0/24"},
	})
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	a := l.pod("a")
	l.put(server, a, map[string]string{customInterfaces: "b1/tap/blue"})
	output, failed := l.tries("ADD", a)
	if failed {
		t.Errorf("ADD failed: %s", output)
	}
	if events := l.failedEvents(); strings.Contains(events, "add pod") {
		t.Errorf("failed events:\n%s", events)
	}
	l.cni("DEL", a, nil)
}

// blockRequests counts the requests for a block of network blue, which fail while refused is set.
type blockRequests struct {
	count   atomic.Int32
	refused atomic.Bool
}

func (b *blockRequests) answer(r *http.Request) int {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/ipblocks") {
		return 0
	}
	b.count.Add(1)
	if b.refused.Load() {
		return http.StatusServiceUnavailable
	}
	return 0
}

// waitingLab is a node of a cluster whose requests for blocks are refused, with pod a on network blue in an ADD. Its
// output is sent when the ADD ends.
func waitingLab(t *testing.T) (*lab, *blockRequests, *node.Pod, <-chan string) {
	t.Helper()
	server := k8stest.New(t)
	requests := &blockRequests{}
	l := clusterLabWith(t, server, node.Options{})
	l.eventually("the agent has the cluster's objects", func() bool { return len(announced(server)) > 0 })
	requests.refused.Store(true)
	server.Fail(requests.answer)
	a := l.pod("a")
	l.put(server, a, map[string]string{customInterfaces: "b1/tap/blue"})
	l.put(server, &node.Pod{Name: "other"}, nil)
	ended := make(chan string, 1)
	go func() {
		output, _ := l.tries("ADD", a)
		ended <- output
	}()
	l.eventually("a block is requested", func() bool { return requests.count.Load() > 0 })
	return l, requests, a, ended
}

// within receives the output of an ADD.
func within(t *testing.T, limit time.Duration, ended <-chan string) (output string) {
	t.Helper()
	select {
	case output = <-ended:
	case <-time.After(limit):
		t.Fatalf("the ADD did not end in %s", limit)
	}
	return output
}

func TestPodThatWaitsForABlockDelaysNoOtherPodAndIsDeleted(t *testing.T) {
	l, requests, a, ended := waitingLab(t)
	before := l.snapshot()
	other := l.pod("other")
	l.cni("ADD", other, nil)
	l.cni("DEL", other, nil)
	l.cni("DEL", a, nil)
	if output := within(t, time.Minute, ended); !strings.Contains(output, `"code": 11`) ||
		!strings.Contains(output, "cancelled while it waited for addresses: a DEL for it arrived") {
		t.Errorf("output of the ADD: %s", output)
	}
	requests.refused.Store(false)
	if left := l.snapshot().Since(before); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
	l.cni("ADD", a, nil)
	l.cni("DEL", a, nil)
}

func TestADDAfterARestartDuringTheWaitForABlockSucceeds(t *testing.T) {
	l, requests, a, ended := waitingLab(t)
	if err := l.KillAgent(); err != nil {
		t.Fatal(err)
	}
	within(t, 3*time.Minute, ended)
	requests.refused.Store(false)
	l.start()
	l.cni("ADD", a, nil)
	if events := l.failedEvents(); strings.Contains(events, "add pod") {
		t.Errorf("failed events:\n%s", events)
	}
	l.cni("DEL", a, nil)
}

func TestAgentStopsAtOnceWhileAPodWaitsForABlock(t *testing.T) {
	l, requests, a, ended := waitingLab(t)
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	if cut := l.logged("calls in progress cut off"); len(cut) > 0 {
		t.Errorf("the agent waited for the ADD for the whole %s: %s", drainTime, cut)
	}
	if output := within(t, time.Minute, ended); !strings.Contains(output, `"code": 11`) {
		t.Errorf("output of the ADD: %s", output)
	}
	requests.refused.Store(false)
	l.start()
	l.cni("ADD", a, nil)
	l.cni("DEL", a, nil)
}

func TestPodsThatWaitForABlockShareOneRequest(t *testing.T) {
	l, requests, a, ended := waitingLab(t)
	pods := []*node.Pod{}
	for i := range 9 {
		pods = append(pods, l.pod(fmt.Sprint("p", i)))
	}
	annotations := map[string]any{
		"runtimeConfig": map[string]any{
			"io.kubernetes.cri.pod-annotations": map[string]string{customInterfaces: "b1/tap/blue"},
		},
	}
	var group sync.WaitGroup
	for _, p := range pods {
		group.Go(func() {
			if output, failed := l.triesWith("ADD", p, annotations); failed {
				t.Errorf("ADD of %s: %s", p.Name, output)
			}
		})
	}
	l.eventually("all pods wait", func() bool { return len(l.logged("event waits")) >= 10 })
	refused := requests.count.Load()
	requests.refused.Store(false)
	group.Wait()
	within(t, time.Minute, ended)
	if n := requests.count.Load() - refused; n < 1 || n > 2 { // one may have been under way, and refused
		t.Errorf("%d requests for blocks, want 1", n)
	}
	if events := l.failedEvents(); strings.Contains(events, "add pod") {
		t.Errorf("failed events:\n%s", events)
	}
	for _, p := range append(pods, a) {
		l.cni("DEL", p, nil)
	}
}

// restartKnown starts the agent again with flags, and waits until it has the cluster's objects.
func (l *lab) restartKnown(flags ...string) {
	l.Helper()
	known := func() int { return len(l.logged("the cluster is known")) }
	l.eventually("the agent has the cluster's objects", func() bool { return known() > 0 })
	before := known()
	if err := errors.Join(l.StopAgent(), l.StartAgent(l.Context(), flags...)); err != nil {
		l.Fatal(err)
	}
	l.eventually("the agent has the cluster's objects again", func() bool { return known() > before })
}

func TestErrorOfAPodWithoutABlockNamesNetworkAndNodeWhileTheAPIServerIsAway(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{})
	l.restartKnown("--kubernetes-block-wait=1m")
	server.Disconnect()
	l.await(func() bool { return l.shows("status", "api-server", "no") }, "the missing API server")
	a := l.pod("a")
	annotations := map[string]any{
		"runtimeConfig": map[string]any{
			"io.kubernetes.cri.pod-annotations": map[string]string{customInterfaces: "b1/tap/blue"},
		},
	}
	output, failed := l.triesWith("ADD", a, annotations)
	for _, part := range []string{
		`"code": 11`, "node n1 has no block of addresses of network blue", "condition api-server of weftctl status",
	} {
		if !failed || !strings.Contains(output, part) {
			t.Errorf("error %s, want %q", output, part)
		}
	}
	if !regexp.MustCompile(`got none in 3(\.\d)?s`).MatchString(output) { // while the API server is away, else a minute
		t.Errorf("error %s, want one after 3 s", output)
	}
	// the stop of the first agent may have ended other events
	if events := l.failedEvents(); strings.Count(events, "refused: node n1 has no block ") != 1 {
		t.Errorf("failed events:\n%s", events)
	}
}

// An API server that hangs accepts requests and does not answer them. Its watches stay: it does not look absent.
func TestAnADDWaitsForABlockNoLongerThanConfiguredWhileTheAPIServerHangs(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{})
	l.restartKnown("--kubernetes-block-wait=2s")
	server.Fail(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/ipblocks") && r.URL.Query().Get("watch") == "" {
			select {
			case <-r.Context().Done():
			case <-t.Context().Done(): // the server does not notice that a client left before it read the body
			}
		}
		return 0
	})
	a := l.pod("a")
	l.put(server, a, map[string]string{customInterfaces: "b1/tap/blue"})
	output := l.fails(a)
	if !regexp.MustCompile(`no block of addresses of network blue .* got none in 2(\.\d)?s`).MatchString(output) {
		t.Errorf("error %s, want one after 2 s", output)
	}
}

func TestAnADDWaitsForABlockNoLongerThanConfigured(t *testing.T) {
	l, requests, a, ended := waitingLab(t)
	if err := l.KillAgent(); err != nil {
		t.Fatal(err)
	}
	within(t, 3*time.Minute, ended)
	if err := l.StartAgent(t.Context(), "--kubernetes-block-wait=1s"); err != nil {
		t.Fatal(err)
	}
	before := requests.count.Load()
	began := time.Now()
	output := l.fails(a)
	if took := time.Since(began); took > 14*time.Second ||
		!strings.Contains(output, "node n1 has no block of addresses of network blue") {
		t.Errorf("after %s: %s", took, output)
	}
	if requests.count.Load() == before {
		t.Error("no block was requested")
	}
}
