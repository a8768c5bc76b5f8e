package devicemanager

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/pod"
)

// collect makes a number of polls, far apart in time.
func (n *node) collect(t *testing.T, poll func(context.Context) error, polls int) {
	t.Helper()
	for range polls {
		n.clock.move(n.config.Collect.After)
		if err := poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAllocationIsReleasedWhenKubeletNoLongerListsIt, and only then.
func TestAllocationIsReleasedWhenKubeletNoLongerListsIt(t *testing.T) {
	type step = func(*testing.T, *node)
	const after = 10 * time.Minute
	admit := func(t *testing.T, n *node) { n.admit(t, podOf("a", 1)) }
	remove := func(_ *testing.T, n *node) { n.kubelet.Remove("shop", "a") }
	connectStep := func(t *testing.T, n *node) {
		if _, err := n.add(t.Context(), "a", "s1"); err != nil {
			t.Fatal(err)
		}
	}
	disconnectStep := func(t *testing.T, n *node) { n.delete(t, "s1") }
	wait := func(d time.Duration) step { return func(_ *testing.T, n *node) { n.clock.move(d) } }
	stop := func(t *testing.T, n *node) {
		if err := n.kubelet.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	start := func(t *testing.T, n *node) {
		if err := n.kubelet.Start(); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(_ *testing.T, n *node) { n.requests.unanswered.Add(1) }
	answer := func(_ *testing.T, n *node) { n.requests.unanswered.Add(-1) }
	for _, tt := range []struct {
		name   string
		steps  []step // polls between them
		lonely bool   // no other pod exists
		stays  bool
	}{
		{name: "nothing of an existing pod", steps: []step{admit, wait(after), wait(after)}, stays: true},
		{name: "of a pod that is gone, after two polls", steps: []step{admit, wait(after), remove, wait(after)}},
		{name: "not after one poll", steps: []step{admit, wait(after), remove}, stays: true},
		{
			name:  "not after two polls at once",
			steps: []step{admit, wait(after), remove, wait(after - time.Second)},
			stays: true,
		},
		{name: "of a pod that was connected", steps: []step{admit, connectStep, remove, disconnectStep, wait(after)}},
		{
			name:  "not while an attachment exists",
			steps: []step{admit, connectStep, remove, wait(after), wait(after)},
			stays: true,
		},
		{
			name:  "not while kubelet cannot be asked",
			steps: []step{admit, stop, remove, wait(after), wait(after)},
			stays: true,
		},
		{
			name:  "not because it could not be asked in between",
			steps: []step{admit, stop, wait(after), start, wait(after)},
			stays: true,
		},
		{
			name:  "not while kubelet waits for an answer",
			steps: []step{ask, admit, remove, wait(after), wait(after)},
			stays: true,
		},
		{name: "not at once after the answer", steps: []step{ask, admit, remove, wait(after), answer}, stays: true},
		{
			name:   "not when kubelet lists no pod at all",
			steps:  []step{admit, remove, wait(after), wait(after)},
			lonely: true,
			stays:  true,
		},
		{name: "when it does so for a long time", steps: []step{admit, remove, wait(10 * after)}, lonely: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, func(n *node) {
				n.config.Collect.After = after
				n.config.Devices.Count = 2
			})
			if !tt.lonely {
				n.admit(t, kubelettest.Pod{Namespace: "kube-system", Name: "proxy"})
			}
			c := n.collector
			for _, step := range tt.steps {
				step(t, n)
				_ = c.collect(t.Context()) // an error while kubelet is stopped
			}
			n.expectAllocation(t, tt.stays)
		})
	}
}

// expectAllocation checks that the allocation exists with all its files, or that nothing of it is left.
func (n *node) expectAllocation(t *testing.T, want bool) {
	t.Helper()
	if stays := len(n.Allocations()) == 1; stays != want {
		t.Errorf("stays: %v, want %v", stays, want)
	}
	if left := n.leftovers(t); !want && (len(left) != 0 || len(n.stateFile(t)) != 0) {
		t.Errorf("left: %v, %v", left, n.stateFile(t))
	}
}

// TestYoungAllocationIsNotCollected: kubelet lists a pod's devices some time after it allocated them.
func TestYoungAllocationIsNotCollected(t *testing.T) {
	n := newNode(t, func(n *node) {
		n.config.Collect.After = time.Second
		n.config.Collect.MinAge = time.Minute
	})
	n.admit(t, kubelettest.Pod{Namespace: "kube-system", Name: "proxy"})
	n.admit(t, podOf("a", 1))
	n.kubelet.Remove("shop", "a")
	c := n.collector
	for elapsed := time.Duration(0); elapsed < time.Minute; elapsed += 2 * time.Second {
		if err := c.collect(t.Context()); err != nil || len(n.Allocations()) != 1 {
			t.Fatalf("after %s: %d allocations, %v", elapsed, len(n.Allocations()), err)
		}
		n.clock.move(2 * time.Second)
	}
	if err := c.collect(t.Context()); err != nil || len(n.Allocations()) != 0 {
		t.Errorf("after a minute: %d allocations, %v", len(n.Allocations()), err)
	}
}

// TestReusedDeviceLeavesItsOldAllocation, which is collected later: a pod that was connected is not being admitted any
// more, so the next holder of its device is another pod, however soon that comes.
func TestReusedDeviceLeavesItsOldAllocation(t *testing.T) {
	for _, later := range []time.Duration{time.Second, time.Hour} {
		t.Run(later.String(), func(t *testing.T) { reuseDevice(t, later) })
	}
}

func reuseDevice(t *testing.T, later time.Duration) {
	n := newNode(t)
	n.admit(t, podOf("a", 2))
	if _, err := n.add(t.Context(), "a", "s1"); err != nil {
		t.Fatal(err)
	}
	n.clock.move(later)
	n.kubelet.Remove("shop", "a") // its sandbox is not deleted yet
	n.admit(t, podOf("b", 1))
	old := n.Allocations()[0]
	young := n.Allocations()[1]
	if strings.Join(old.Devices, " ") != "memif-1" || strings.Join(young.Devices, " ") != "memif-0" ||
		old.Socket == young.Socket {
		t.Fatalf("allocations: %+v", n.Allocations())
	}
	if _, err := n.add(t.Context(), "b", "s2"); err != nil {
		t.Fatal(err)
	}
	poll := n.collector.collect
	n.collect(t, poll, 3)
	if len(n.Allocations()) != 2 {
		t.Fatal("collected under an attachment")
	}
	n.delete(t, "s1")
	n.collect(t, poll, 3)
	if all := n.Allocations(); len(all) != 1 || all[0].ID != young.ID {
		t.Errorf("allocations: %+v", all)
	}
	if got := n.leftovers(t); len(got) != 4 || !slices.Contains(got, young.Directory) {
		t.Errorf("left: %v", got)
	}
}

// TestReleaseFailsWhileAnAttachmentUsesTheAllocation, also after a restart.
func TestReleaseFailsWhileAnAttachmentUsesTheAllocation(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	ev, err := n.add(t.Context(), "a", "s1")
	if err != nil {
		t.Fatal(err)
	}
	id := n.Allocations()[0].ID
	for _, restarted := range []bool{false, true} {
		if restarted {
			n.kill(t, ev.Attachment)
		}
		if _, err := n.loop.Do(t.Context(), &pod.ReleaseDevice{Allocation: id, Reason: "test"}); err == nil ||
			!strings.Contains(err.Error(), "shop/a") {
			t.Errorf("restarted %v: %v", restarted, err)
		}
		if mode(n.config.Directories.Root+"/"+id) == "" || len(n.Allocations()) != 1 {
			t.Errorf("restarted %v: released", restarted)
		}
	}
}

func TestCollectorRunsSoonAfterPodIsDeleted(t *testing.T) {
	n := newNode(t, func(n *node) {
		n.collects = true
		n.config.Collect.After = 20 * time.Millisecond
		n.config.Collect.MinAge = time.Millisecond
		n.config.Now = nil
	})
	n.admit(t, kubelettest.Pod{Namespace: "kube-system", Name: "proxy"})
	n.admit(t, podOf("a", 1))
	if _, err := n.add(t.Context(), "a", "s1"); err != nil {
		t.Fatal(err)
	}
	n.kubelet.Remove("shop", "a")
	n.delete(t, "s1")
	eventually(t, "nothing is left", func() bool { return len(n.Allocations()) == 0 && len(n.leftovers(t)) == 0 })
}
