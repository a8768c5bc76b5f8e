package outage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/refuse"
)

// fatal is a stage on which one pod's interface kills the dataplane.
type fatal struct {
	*stage
	dataplane *supervised
	proxy     *refuse.Proxy
	kills     atomic.Int32
}

// tagging is the message that names a pod's interface.
const tagging = "sw_interface_tag_add_del"

// newFatal starts the agent after the proxy of its dataplane is prepared.
func newFatal(t *testing.T, prepare ...func(*refuse.Proxy)) *fatal {
	t.Helper()
	f := &fatal{stage: newStage(t), dataplane: supervise(t)}
	var err error
	f.proxy, err = refuse.Listen(filepath.Join(f.Dir, "proxy.sock"), f.dataplane.Socket())
	must.Succeed(t, err)
	t.Cleanup(func() {
		must.Succeed(t, f.StopAgent())
		_ = f.proxy.Close()
	})
	f.flags = []string{
		"--dataplane-type", "vpp", "--dataplane-socket", filepath.Join(f.Dir, "proxy.sock"), "--dataplane-stats-socket",
		f.dataplane.StatsSocket(),
	}
	for _, p := range prepare {
		p(f.proxy)
	}
	f.start()
	return f
}

// arm makes the main interface of a pod kill the dataplane from now on.
func (f *fatal) arm(p *node.Pod) {
	f.Helper()
	var reply struct {
		Attachments []struct {
			Attachment struct{ ContainerID string }
			Interfaces []struct{ Object string }
		}
	}
	must.Succeed(f.T, f.ctl(&reply, "attachments"))
	for _, a := range reply.Attachments {
		if a.Attachment.ContainerID == p.ContainerID {
			f.proxy.Kill(tagging, a.Interfaces[0].Object, f.kill)
			return
		}
	}
	f.Fatalf("no attachment of %s", p.Name)
}

// kill ends the dataplane.
func (f *fatal) kill() {
	f.kills.Add(1)
	f.dataplane.kills <- struct{}{}
}

// awaitQuarantine waits until exactly this pod is quarantined and other pods are served.
func (f *fatal) awaitQuarantine(name string) {
	f.Helper()
	eventually(f.T, "pod "+name+" is quarantined", func() bool {
		return slices.Equal(f.quarantined("quarantined"), []string{name}) && len(f.quarantined("suspect")) == 0
	})
	must.Succeed(f.T, f.AwaitReady(f.Context()))
}

// The dataplane dies whenever the interface of one pod is created. The agent finds that pod and quarantines it; the
// others forward.
func TestOnlyThePodThatKillsTheDataplaneIsQuarantined(t *testing.T) {
	f := newFatal(t)
	var pods []*node.Pod
	var links [][]node.Link
	for _, name := range []string{"a", "b", "c", "d"} {
		p, l := f.add(name)
		pods = append(pods, p)
		links = append(links, l)
	}
	a := 0
	b := 1
	c := 2
	d := 3
	f.arm(pods[b])
	f.kill()
	f.awaitQuarantine("b")
	t.Logf("the dataplane died %d times until pod b was quarantined", f.kills.Load())
	// Once by the test, once by a replay of all pods unless the test's kill came so soon that it counts as that, and
	// twice by pod b alone.
	if kills := f.kills.Load(); kills < 3 || kills > 4 {
		t.Errorf("the dataplane was killed %d times, want 3 or 4", kills)
	}
	f.reach(pods[a], links[c])
	f.reach(pods[d], links[a])
	if err := f.runtime.Check(t.Context(), pods[c]); err != nil {
		t.Error(err)
	}
	err := f.runtime.Check(t.Context(), pods[b])
	if err == nil || !strings.Contains(err.Error(), "quarantined since") ||
		!strings.Contains(err.Error(), "weftctl quarantine release demo/b") {
		t.Errorf("CHECK of the quarantined pod: %v", err)
	}
	if failed := f.conditions(); !strings.Contains(failed["quarantine"], "pod demo/b") {
		t.Errorf("conditions %v", failed)
	}

	kills := f.kills.Load()
	must.Succeed(t, f.KillAgent()) // its quarantine is durable
	f.start()
	f.awaitQuarantine("b")
	f.reach(pods[a], links[c])
	if now := f.kills.Load(); now != kills {
		t.Errorf("the restarted agent caused %d kills", now-kills)
	}

	if _, err := f.Weftctl(t.Context(), "quarantine", "release", "demo/c"); err == nil {
		t.Error("a pod that is not quarantined was released")
	}
	f.proxy.Allow(tagging)
	_, err = f.Weftctl(t.Context(), "quarantine", "release", "demo/b")
	must.Succeed(t, err)
	f.reach(pods[a], links[b])
	if err := f.runtime.Check(t.Context(), pods[b]); err != nil {
		t.Error(err)
	}
	if failed := f.conditions(); len(failed) > 0 || len(f.quarantined("quarantined")) > 0 {
		t.Errorf("conditions after the release: %v", failed)
	}
	for _, p := range pods {
		must.Succeed(t, f.runtime.Del(t.Context(), p))
	}
}

func TestDELOfAQuarantinedPodEndsTheQuarantine(t *testing.T) {
	f := newFatal(t)
	a, _ := f.add("a")
	b, _ := f.add("b")
	f.arm(b)
	f.kill()
	f.awaitQuarantine("b")
	must.Succeed(t, f.runtime.Del(t.Context(), b))
	if names := f.quarantined("quarantined"); len(names) > 0 || len(f.conditions()) > 0 {
		t.Errorf("quarantined %v, conditions %v", names, f.conditions())
	}
	must.Succeed(t, f.KillAgent())
	f.start()
	if names := f.quarantined("quarantined"); len(names) > 0 {
		t.Errorf("quarantined after a restart: %v", names)
	}
	must.Succeed(t, f.runtime.Del(t.Context(), a))
}

// Two attachments of a pod are released together; the second one still kills the dataplane.
func TestAfterAReleaseOfTwoOnlyTheFatalOneIsQuarantinedAgain(t *testing.T) {
	f := newFatal(t)
	a, links := f.add("a")
	first, _ := f.add("b")
	second, err := f.NewSandbox(first, "b2")
	must.Succeed(t, err)
	_, err = f.runtime.Add(t.Context(), second)
	must.Succeed(t, err)
	withheld := func() (containers []string) {
		var reply struct{ Entries []entry }
		must.Succeed(t, f.ctl(&reply, "quarantine", "list"))
		for _, e := range reply.Entries {
			if e.State == "quarantined" {
				containers = append(containers, e.Attachment.ContainerID)
			}
		}
		slices.Sort(containers)
		return containers
	}
	var want []string
	for _, p := range []*node.Pod{first, second} {
		f.arm(p)
		f.kill()
		want = append(want, p.ContainerID)
		slices.Sort(want)
		eventually(t, p.ContainerID+" is quarantined", func() bool {
			return slices.Equal(withheld(), want) && len(f.quarantined("suspect")) == 0
		})
		must.Succeed(t, f.AwaitReady(t.Context()))
	}
	_, err = f.Weftctl(t.Context(), "quarantine", "release", "demo/b")
	t.Logf("release: %v", err)
	eventually(t, "the second one alone is quarantined again", func() bool {
		return slices.Equal(withheld(), []string{second.ContainerID}) && len(f.quarantined("suspect")) == 0
	})
	must.Succeed(t, f.AwaitReady(t.Context()))
	if err := f.runtime.Check(t.Context(), first); err != nil {
		t.Error(err)
	}
	f.reach(a, links)
	for _, p := range []*node.Pod{a, first, second} {
		must.Succeed(t, f.runtime.Del(t.Context(), p))
	}
}

// The agent repeats its probe for taps until the dataplane answers: a wrong result would replace the host link.
func TestProbeForTapsIsRepeatedUntilItIsAnswered(t *testing.T) {
	netnstest.RequireTap(t)
	dataplane.RequireTap(t)
	f := newFatal(t, func(p *refuse.Proxy) { p.Hang("tap_create_v3", 1) })
	f.add("a")
	log, err := os.ReadFile(f.AgentLog())
	must.Succeed(t, err)
	if !strings.Contains(string(log), "did not report whether it can create taps, retrying") {
		t.Error("the proxy dropped no probe, so this test has no effect")
	}
	link, err := netlink.LinkByName(node.HostLink)
	must.Succeed(t, err)
	if _, tap := link.(*netlink.Tuntap); !tap {
		t.Errorf("the type of the host link is %s", link.Type())
	}
}

// mostTries is the number of ADDs in which a pod must kill the dataplane three times. An ADD that comes before the
// agent has replayed the dataplane fails without a kill.
const mostTries = 30

// tryFatal executes ADD for a pod, whose interface kills the dataplane, and deletes the sandbox as kubelet does after a
// failure.
func (f *fatal) tryFatal(p *node.Pod) error {
	f.Helper()
	key := pod.Key{Network: "weft", ContainerID: p.ContainerID, IfName: "eth0"}
	f.proxy.Kill(tagging, desired.ObjectName(key, "eth0"), f.kill)
	_, err := f.runtime.Add(f.Context(), p)
	if err != nil {
		must.Succeed(f.T, f.runtime.Del(f.Context(), p))
	}
	return err
}

// killByADDs adds a pod, each time with another sandbox, until it has killed the dataplane three times.
func (f *fatal) killByADDs(of *node.Pod) {
	f.Helper()
	for n := range mostTries {
		p, err := f.NewSandbox(of, fmt.Sprintf("%s-%d", of.Name, n))
		must.Succeed(f.T, err)
		if err := f.tryFatal(p); err == nil || strings.Contains(err.Error(), "refused since") {
			f.Fatalf("ADD after %d kills: %v", f.kills.Load(), err)
		}
		must.Succeed(f.T, p.Remove())
		if f.kills.Load() == 3 {
			eventually(f.T, "the crash is noticed", func() bool {
				return slices.Equal(f.quarantined("refused"), []string{of.Name})
			})
			must.Succeed(f.T, f.AwaitReady(f.Context()))
			return
		}
		must.Succeed(f.T, f.AwaitReady(f.Context()))
	}
	f.Fatalf("%d kills after %d ADDs", f.kills.Load(), mostTries)
}

// requireRefused requires that an ADD is refused with the reason and what to do, and does not reach the dataplane.
func (f *fatal) requireRefused(p *node.Pod) {
	f.Helper()
	before := f.kills.Load()
	err := f.tryFatal(p)
	refused, is := errors.AsType[*types.Error](err)
	if !is || refused.Code != 105 {
		f.Fatalf("ADD is not refused: %v", err)
	}
	for _, text := range []string{
		"refused since", "the dataplane died 3 times in a row while the pod was added",
		"weftctl quarantine release demo/" + p.Name,
	} {
		if !strings.Contains(err.Error(), text) {
			f.Errorf("the refusal lacks %q: %v", text, err)
		}
	}
	if now := f.kills.Load(); now != before {
		f.Errorf("a refused ADD killed the dataplane %d times", now-before)
	}
	if names := f.quarantined("refused"); !slices.Equal(names, []string{p.Name}) {
		f.Errorf("refused pods: %v", names)
	}
}

// kubelet repeats an ADD that fails. A pod whose ADDs kill the dataplane is refused after three, and also by an agent
// that was restarted. The other pods forward, and new ones start.
func TestAPodWhoseADDsKillTheDataplaneIsRefusedAndOthersAreServed(t *testing.T) {
	f := newFatal(t)
	a, links := f.add("a")
	b, _ := f.add("b")
	bad := f.sandbox("bad")
	f.killByADDs(bad)
	f.requireRefused(bad)
	f.reach(b, links)
	c, _ := f.add("c")
	f.reach(c, links)

	must.Succeed(t, f.KillAgent()) // the refusal is durable
	f.start()
	f.requireRefused(bad)
	f.reach(b, links)
	for _, p := range []*node.Pod{a, b, c} {
		if err := f.runtime.Check(t.Context(), p); err != nil {
			t.Errorf("pod %s: %v", p.Name, err)
		}
	}
	eventually(t, "all conditions hold", func() bool { return len(f.conditions()) == 0 })

	f.proxy.Allow(tagging)
	_, err := f.Weftctl(t.Context(), "quarantine", "release", "demo/bad")
	must.Succeed(t, err)
	result, err := f.runtime.Add(t.Context(), bad)
	must.Succeed(t, err)
	added, err := node.Links(result)
	must.Succeed(t, err)
	f.reach(a, added)
	if names := f.quarantined("refused"); len(names) > 0 {
		t.Errorf("refused after a successful ADD: %v", names)
	}
	for _, p := range []*node.Pod{a, b, c, bad} {
		must.Succeed(t, f.runtime.Del(t.Context(), p))
	}
}
