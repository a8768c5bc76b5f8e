package outage_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
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
	f.flags = []string{"--dataplane-type", "vpp", "--dataplane-socket", filepath.Join(f.Dir, "proxy.sock"), "--dataplane-stats-socket", f.dataplane.StatsSocket()}
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

// The dataplane dies whenever the interface of one pod is created. The agent finds that pod and quarantines it; the others forward.
func TestOnlyThePodThatKillsTheDataplaneIsQuarantined(t *testing.T) {
	f := newFatal(t)
	var pods []*node.Pod
	var links [][]node.Link
	for _, name := range []string{"a", "b", "c", "d"} {
		p, l := f.add(name)
		pods, links = append(pods, p), append(links, l)
	}
	a, b, c, d := 0, 1, 2, 3
	f.arm(pods[b])
	f.kill()
	f.awaitQuarantine("b")
	t.Logf("the dataplane died %d times until pod b was quarantined", f.kills.Load())
	// Once by the test, once by a replay of all pods unless the test's kill came so soon that it counts as that, and twice by pod b alone.
	if kills := f.kills.Load(); kills < 3 || kills > 4 {
		t.Errorf("the dataplane was killed %d times, want 3 or 4", kills)
	}
	f.reach(pods[a], links[c])
	f.reach(pods[d], links[a])
	if err := f.runtime.Check(t.Context(), pods[c]); err != nil {
		t.Error(err)
	}
	err := f.runtime.Check(t.Context(), pods[b])
	if err == nil || !strings.Contains(err.Error(), "quarantined since") || !strings.Contains(err.Error(), "weftctl quarantine release demo/b") {
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
		eventually(t, p.ContainerID+" is quarantined", func() bool { return slices.Equal(withheld(), want) && len(f.quarantined("suspect")) == 0 })
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
