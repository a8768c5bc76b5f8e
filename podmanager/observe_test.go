package podmanager

import (
	"fmt"
	"testing"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// happened lists what was observed, in its order.
func (n *node) happened() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for _, o := range n.observed {
		all = append(all, fmt.Sprintf("%s %s %s %d", o.Happening, o.Pod, o.Key.ContainerID, o.Code))
	}
	return all
}

func TestWhatHappensToAttachmentsIsObserved(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.add(t, "c1", "/run/netns/a") // again: nothing happens to it
	n.committer.Before(refuseAtomic)
	n.refusedAdd(t, addOf("c2", "/run/netns/b"))
	n.committer.Before(nil)
	n.refusedAdd(t, addOf("c3", "/run/netns/nowhere"))
	n.del(t, "c2") // there is none
	if _, err := n.loop.Do(t.Context(), &pod.DeletePod{Key: keyOfContainer("c1"), Reason: "network namespace is gone"}); err != nil {
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
		t.Errorf("the record of the second failure is %v, want one of a refusal", rec)
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
