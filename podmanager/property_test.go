package podmanager

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// TestMemoryStateFileAndMachineAgree does any ADDs and DELs, some of which fail:
// what is kept, what is saved and what is wired are the same keys, always those of
// the ADDs that succeeded.
func TestMemoryStateFileAndMachineAgree(t *testing.T) {
	n := newNode(t)
	rapid.Check(t, func(rt *rapid.T) {
		model := make(map[string]string) // namespace by container
		for _, a := range n.Attachments() {
			n.del(t, a.Key.ContainerID)
		}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			container := rapid.SampledFrom([]string{"c1", "c2", "c3"}).Draw(rt, "container")
			netns := rapid.SampledFrom([]string{"/run/netns/a", "/run/netns/b"}).Draw(rt, "netns")
			n.step(t, rapid.SampledFrom([]string{"add", "add", "del", "failing add"}).Draw(rt, "what"), model, pair{container, netns})
			n.want(t, slices.Collect(maps.Keys(model))...)
		}
	})
}

type pair struct{ container, netns string }

// step does one call, and to the model, of namespaces by container, what it must do to the node.
func (n *node) step(t *testing.T, what string, model map[string]string, p pair) {
	t.Helper()
	switch what {
	case "add":
		had, known := model[p.container]
		ok := n.tryAdd(t, p.container, p.netns)
		if ok != (!known || had == p.netns) {
			t.Fatalf("ADD of %s in %s succeeded: %v, though it had %q", p.container, p.netns, ok, had)
		}
		if ok {
			model[p.container] = p.netns
		}
	case "failing add":
		n.failOnce(t, p.container, p.netns)
	case "del":
		if err := n.del(t, p.container); err != nil {
			t.Fatal(err)
		}
		delete(model, p.container)
	}
}

func (n *node) tryAdd(t *testing.T, container, netns string) bool {
	reply, err := n.Add(t.Context(), addOf(container, netns))
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetError() == nil
}

// failOnce does an ADD that the dataplane would refuse; it is not asked for one that is repeated.
func (n *node) failOnce(t *testing.T, container, netns string) {
	n.committer.Before(refuseAtomic)
	defer n.committer.Before(nil)
	n.tryAdd(t, container, netns)
}

// TestEachCallHasTheReplyOfItsOwnEvent goes with many sandboxes at once, and leaves nothing.
// rows: MEM-07, CIL-15
func TestEachCallHasTheReplyOfItsOwnEvent(t *testing.T) {
	const sandboxes = 50
	n := newNode(t)
	for i := range sandboxes {
		n.netns[fmt.Sprintf("/run/netns/%d", i)] = uint64(100 + i)
	}
	var calls sync.WaitGroup
	for i := range sandboxes {
		calls.Go(func() {
			container, netns := fmt.Sprintf("c%d", i), fmt.Sprintf("/run/netns/%d", i)
			req := addOf(container, netns)
			req.Pod = &weftv1.Pod{Namespace: "shop", Name: container}
			reply, err := n.Add(t.Context(), req)
			if err != nil || reply.GetError() != nil || reply.GetInterfaces()[0].GetSandbox() != netns {
				t.Errorf("%s in %s got %v, %v", container, netns, reply, err)
			}
			if a, ok := n.Attachment(keyOfContainer(container)); !ok || a.Pod != (pod.ID{Namespace: "shop", Name: container}) {
				t.Errorf("%s is kept as %+v", container, a)
			}
			if err := n.del(t, container); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	n.want(t)
}
