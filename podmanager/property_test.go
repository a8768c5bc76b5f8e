package podmanager

import (
	"fmt"
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
			switch rapid.SampledFrom([]string{"add", "add", "del", "failing add"}).Draw(rt, "what") {
			case "add":
				had, known := model[container]
				if ok := n.tryAdd(t, container, netns); ok != (!known || had == netns) {
					rt.Fatalf("ADD of %s in %s succeeded: %v, though it had %q", container, netns, ok, had)
				} else if ok {
					model[container] = netns
				}
			case "failing add":
				n.failOnce(t, container, netns)
			case "del":
				if err := n.del(t, container); err != nil {
					rt.Fatal(err)
				}
				delete(model, container)
			}
			var containers []string
			for c := range model {
				containers = append(containers, c)
			}
			n.want(t, containers...)
		}
	})
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
