package podmanager

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// TestMemoryStateFileAndMachineAgree runs random ADDs and DELs, some of which fail: memory, state file and machine have
// the keys of the successful ADDs.
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
			n.step(t, rapid.SampledFrom([]string{"add", "add", "del", "failing add"}).Draw(rt, "what"), model, pair{
				container, netns,
			})
			n.want(t, slices.Collect(maps.Keys(model))...)
		}
	})
}

type pair struct{ container, netns string }

// step runs one call and updates the model, the namespaces by container.
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

// failOnce runs an ADD that the dataplane rejects. A repeated ADD does not reach the dataplane.
func (n *node) failOnce(t *testing.T, container, netns string) {
	n.committer.Before(refuseAtomic)
	defer n.committer.Before(nil)
	n.tryAdd(t, container, netns)
}

// TestEachCallHasTheReplyOfItsOwnEvent adds and deletes many sandboxes concurrently.
func TestEachCallHasTheReplyOfItsOwnEvent(t *testing.T) {
	const sandboxes = 50
	n := newNode(t)
	for i := range sandboxes {
		n.netns[fmt.Sprintf("/run/netns/%d", i)] = uint64(100 + i)
	}
	var calls sync.WaitGroup
	for i := range sandboxes {
		calls.Go(func() {
			container := fmt.Sprintf("c%d", i)
			netns := fmt.Sprintf("/run/netns/%d", i)
			req := addOf(container, netns)
			req.Pod = &weftv1.Pod{Namespace: "shop", Name: container}
			reply, err := n.Add(t.Context(), req)
			if err != nil || reply.GetError() != nil || reply.GetInterfaces()[0].GetSandbox() != netns {
				t.Errorf("%s in %s got %v, %v", container, netns, reply, err)
			}
			if a, ok := n.Attachment(keyOfContainer(container)); !ok ||
				a.Pod != (pod.ID{Namespace: "shop", Name: container}) {
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

// happened returns the observed outcomes in order.
func (n *node) happened() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for _, o := range n.observed {
		all = append(all, fmt.Sprintf("%s %s %s %d", o.Happening, o.Pod, o.Key.ContainerID, o.Code))
	}
	return all
}

func TestOutcomesOfAttachmentsAreObserved(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.add(t, "c1", "/run/netns/a") // a repeat has no outcome
	n.committer.Before(refuseAtomic)
	n.refusedAdd(t, addOf("c2", "/run/netns/b"))
	n.committer.Before(nil)
	n.refusedAdd(t, addOf("c3", "/run/netns/nowhere"))
	n.del(t, "c2") // unknown
	if _, err := n.loop.Do(t.Context(), &pod.DeletePod{
		Key:    keyOfContainer("c1"),
		Reason: "network namespace is gone",
	}); err != nil {
		t.Fatal(err)
	}
	want := "[added shop/cart-0 c1 0 failed shop/cart-0 c2 105 failed shop/cart-0 c3 8 removed shop/cart-0 c1 0]"
	if got := fmt.Sprint(n.happened()); got != want {
		t.Fatalf("observed %s, want %s", got, want)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := n.observed[0].Attachment; a == nil || len(a.Interfaces) != 1 {
		t.Errorf("added is %+v", a)
	}
	if rec := n.observed[1].Record; rec == nil || !hasStep(rec, "commit") {
		t.Errorf("the record of the first failure is %v", rec)
	}
	if rec := n.observed[2].Record; rec == nil || !rec.Started.IsZero() {
		t.Errorf("the record of the second failure is %v, want a refusal", rec)
	}
}

func hasStep(rec *eventloop.Record, name string) bool {
	for _, s := range rec.Steps {
		if s.Name == name && s.Err != "" {
			return true
		}
	}
	return false
}

// FuzzRestore restores any attachment of a state file. A repeated ADD and a CHECK of it are answered, and a DEL removes
// it.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(
		`{"key":{"network":"weft","containerID":"c1","ifName":"eth0"},"netns":{"path":"/run/netns/a","inode":11,"device":4},
		"interfaces":[{"name":"eth0","type":"tap","addresses":["10.1.0.3/32"],"gateways":["169.254.1.1",""],"routes":[{"destination":"0.0.0.0/0"}]},
		{"name":"m1","type":"memif","memif":{"ringSize":-1}}],"delegation":{"routes":[{"destination":"10.0.0.0/8"}]}}`))
	f.Add([]byte(`{"interfaces":[{"type":"memif","hostLink":"x"}],"awaitsAddresses":true}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var a pod.Attachment
		if json.Unmarshal(raw, &a) != nil {
			return
		}
		a.Key = keyOfContainer("c1")
		n := newNodeWith(t, &a)
		if _, err := n.Add(t.Context(), addOf("c1", "/run/netns/a")); err != nil {
			t.Error(err)
		}
		if _, err := n.Check(t.Context(), &weftv1.CheckRequest{
			Caller:     caller(),
			Attachment: attachment("c1"),
			Netns:      "/run/netns/a",
		}); err != nil {
			t.Error(err)
		}
		if err := n.del(t, "c1"); err != nil {
			t.Error(err)
		}
		n.want(t)
	})
}

// A pod of the same name may be another one. Runtimes and state files of earlier versions may not know UIDs.
func TestAttachmentsOfAPodHaveItsNameAndNoOtherUID(t *testing.T) {
	n := newNode(t)
	var all []*pod.Attachment
	for container, id := range map[string]pod.ID{
		"c1": {Namespace: "shop", Name: "cart-0", UID: "u1"}, "c2": {Namespace: "shop", Name: "cart-0", UID: "u2"},
		"c3": {Namespace: "shop", Name: "cart-0"}, "c4": {Namespace: "shop", Name: "cart-1", UID: "u1"}, "c5": {
			Namespace: "web",
			Name:      "cart-0",
			UID:       "u1",
		},
	} {
		all = append(all, &pod.Attachment{Key: keyOfContainer(container), Pod: id})
	}
	n.Restore(all)
	for uid, want := range map[string][]string{
		"u1": {"c1", "c3"},
		"u2": {"c2", "c3"},
		"u9": {"c3"},
		"":   {"c1", "c2", "c3"},
	} {
		var got []string
		for _, a := range n.OfPod(pod.ID{Namespace: "shop", Name: "cart-0", UID: uid}) {
			got = append(got, a.Key.ContainerID)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("UID %q: %q, want %q", uid, got, want)
		}
	}
}
