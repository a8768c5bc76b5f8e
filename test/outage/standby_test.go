package outage_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

const (
	standbyRounds = 3 // replacements of each kind
	standbyPods   = 6 // each with three links
	echoEvery     = 2 * time.Millisecond
)

// relay is a stage with weft-vswitches that the test replaces, as Kubernetes does.
type relay struct {
	*stage
	active  *node.Vswitch
	started int
	from    *node.Pod
	to      []node.Link
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	if dataplane.Prefix() != "" {
		t.Skip("VPP has no standby")
	}
	r := &relay{stage: newStageWith(t, node.Options{External: true, PodInterface: "veth"})}
	r.active = r.begin()
	r.start()
	return r
}

// begin starts a weft-vswitch and waits until it serves or waits as a standby.
func (r *relay) begin(flags ...string) *node.Vswitch {
	r.Helper()
	r.started++
	v, err := r.StartVswitch(fmt.Sprintf("vswitch-%d", r.started), flags...)
	must.Succeed(r.T, err)
	must.Succeed(r.T, r.AwaitVswitch(r.Context(), v))
	return v
}

// addPods adds pods with veths as main interfaces, which stay when the dataplane ends, so that echo requests can always
// be sent.
func (r *relay) addPods() (pods []*node.Pod) {
	r.Helper()
	for i := range standbyPods {
		p := r.sandbox(fmt.Sprintf("pod%d", i))
		p.Annotations = map[string]string{"contivpp.io/custom-if": "x0/tap/blue, x1/veth/red"}
		result, err := r.runtime.Add(r.Context(), p)
		must.Succeed(r.T, err)
		r.to, err = node.Links(result)
		must.Succeed(r.T, err)
		pods = append(pods, p)
	}
	r.from = pods[0]
	return pods
}

// lost replaces the dataplane while one pod pings another, and returns the number of lost echo requests.
func (r *relay) lost(replace func()) int {
	r.Helper()
	to := r.to[0].Bare()[0]
	p, err := ping.Open(r.from.Netns, to)
	must.Succeed(r.T, err)
	defer p.Close()
	r.reach(r.from, r.to)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	result := make(chan ping.Loss, 1)
	go func() {
		loss, err := p.Stream(ctx, to, echoEvery)
		if err != nil {
			r.Error(err)
		}
		result <- loss
	}()
	eventually(r.T, "echoes are sent", func() bool { return p.Sent() > 20 })
	replace()
	r.replayed()
	recovered := p.Sent()
	eventually(r.T, "echoes are sent after the replay", func() bool { return p.Sent() > recovered+20 })
	cancel()
	loss := <-result
	r.Log(loss)
	return loss.Sent - loss.Answered
}

// replayed waits until the agent has replayed the desired state to the active dataplane.
func (r *relay) replayed() {
	r.Helper()
	eventually(r.T, "the active dataplane serves", func() bool { return r.DataplanePID() == r.active.PID() })
	eventually(r.T, "the agent's conditions hold", func() bool {
		return strings.Count(r.log(r.AgentLog()), `msg="dataplane replayed"`) == r.started-1 && len(r.conditions()) == 0
	})
}

func (r *relay) log(path string) string {
	r.Helper()
	text, err := os.ReadFile(path)
	must.Succeed(r.T, err)
	return string(text)
}

func TestReplacementByAStandbyLosesLessThanARestart(t *testing.T) {
	r := newRelay(t)
	pods := r.addPods()
	with := 0
	without := 0
	for range standbyRounds {
		without += r.lost(func() {
			must.Succeed(t, r.active.End(syscall.SIGTERM))
			r.active = r.begin()
		})
		next := r.begin("--standby")
		with += r.lost(func() {
			former := r.active
			r.active = next
			must.Succeed(t, former.End(syscall.SIGTERM))
		})
	}
	t.Logf("%d replacements each: %d echo requests lost with a standby, %d without, interval %s", standbyRounds, with,
		without, echoEvery)
	if with >= without {
		t.Errorf("lost %d echoes with a standby, %d without", with, without)
	}
	for _, p := range pods {
		must.Succeed(t, r.runtime.Check(t.Context(), p))
	}
}

// The agent's replay after a handover finds everything in place.
func TestReplayAfterAHandoverChangesNothing(t *testing.T) {
	r := newRelay(t)
	pods := r.addPods()
	for range standbyRounds {
		former := r.active
		r.active = r.begin("--standby")
		if lost := r.lost(func() { must.Succeed(t, former.End(syscall.SIGTERM)) }); time.Duration(lost)*echoEvery > 200*
			time.Millisecond {
			t.Errorf("%d echo requests lost, interval %s", lost, echoEvery)
		}
		out, err := r.Weftctl(t.Context(), "transactions")
		must.Succeed(t, err)
		replays := regexp.MustCompile(`dataplane connected again +([0-9]+) `).FindAllStringSubmatch(out, -1)
		if len(replays) == 0 || slices.ContainsFunc(replays, func(replay []string) bool { return replay[1] != "0" }) {
			t.Errorf("not all replays were without operation:\n%s", out)
		}
	}
	for _, p := range pods {
		must.Succeed(t, r.runtime.Check(t.Context(), p))
	}
}

func TestStandbyTakesOverWhenTheActiveDataplaneIsKilled(t *testing.T) {
	r := newRelay(t)
	before, err := leftovers.Steady(t.Context(), r.places(), timeout)
	must.Succeed(t, err)
	pods := r.addPods()
	for range standbyRounds {
		former := r.active
		r.active = r.begin("--standby")
		r.lost(func() { must.Succeed(t, former.End(syscall.SIGKILL)) })
	}
	for _, p := range pods {
		must.Succeed(t, r.runtime.Check(t.Context(), p))
		must.Succeed(t, r.runtime.Del(t.Context(), p))
		must.Succeed(t, p.Remove())
	}
	after, err := leftovers.Settle(t.Context(), r.places(), before, timeout)
	must.Succeed(t, err)
	if lines := after.Since(before); len(lines) > 0 {
		t.Errorf("left over:\n  %s", strings.Join(lines, "\n  "))
	}
}

func TestStandbyCreatesNothingWhileItWaits(t *testing.T) {
	r := newRelay(t)
	r.addPods()
	before, err := leftovers.Steady(t.Context(), r.places(), timeout)
	must.Succeed(t, err)
	serving := r.DataplanePID()
	files := r.files()
	first := r.begin("--standby")
	second := r.beginBehind("--standby")
	after, err := leftovers.Steady(t.Context(), r.places(), timeout)
	must.Succeed(t, err)
	if lines := after.Since(before); len(lines) > 0 || r.DataplanePID() != serving {
		t.Errorf("pid %d serves, want %d; changes:\n  %s", r.DataplanePID(), serving, strings.Join(lines, "\n  "))
	}
	if now := slices.DeleteFunc(r.files(), func(name string) bool {
		return name == "vswitch-api.sock.standby"
	}); !slices.Equal(now, files) {
		t.Errorf("files %v, before %v", now, files)
	}
	// A waiting standby that ends does not affect the others, and the active one keeps serving.
	must.Succeed(t, first.End(syscall.SIGTERM))
	must.Succeed(t, r.AwaitVswitch(t.Context(), second))
	must.Succeed(t, second.End(syscall.SIGTERM))
	r.reach(r.from, r.to)
	if r.DataplanePID() != serving {
		t.Errorf("pid %d serves, want %d", r.DataplanePID(), serving)
	}
}

// beginBehind starts a standby that waits behind another one.
func (r *relay) beginBehind(flags ...string) *node.Vswitch {
	r.Helper()
	r.started++
	v, err := r.StartVswitch(fmt.Sprintf("vswitch-%d", r.started), flags...)
	must.Succeed(r.T, err)
	eventually(r.T, "a standby waits behind another one", func() bool {
		return strings.Contains(r.log(r.DataplaneLog()), `msg="standby waits behind another standby"`)
	})
	return v
}

// files returns the files in the directory of the dataplane's socket.
func (r *relay) files() (names []string) {
	r.Helper()
	entries, err := os.ReadDir(r.RunDir())
	must.Succeed(r.T, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
