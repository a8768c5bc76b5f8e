package announcement_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

func (l *lab) announcer(node string) *announcement.Writer {
	return &announcement.Writer{Client: l.Client(), Node: node, Log: slog.New(slog.DiscardHandler)}
}

func (l *lab) nodeNetwork(node string) v1.NodeNetwork {
	l.T.Helper()
	var n v1.NodeNetwork
	if !l.Object(nodeNets, "", node, &n) {
		l.T.Fatalf("node %s announced nothing", node)
	}
	return n
}

// Nodes that join together get different numbers although requests fail.
func TestNodesThatJoinTogetherGetDifferentNumbers(t *testing.T) {
	const nodes = 40 // choose among the lowest 64: many meet
	l := newLab(t)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	l.Fail(func(r *http.Request) int {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(4) == 0 {
			return []int{http.StatusConflict, http.StatusInternalServerError, http.StatusTooManyRequests}[random.IntN(
				3)]
		}
		return 0
	})
	var joining sync.WaitGroup
	for i := range nodes {
		name := fmt.Sprintf("n%02d", i)
		a := l.announcer(name)
		joining.Go(func() {
			for a.Announce(t.Context(), announcement.Announcement{UID: "uid of " + name}) != nil &&
				t.Context().Err() == nil {
				continue
			}
		})
	}
	joining.Wait()
	l.Fail(nil)
	by := make(map[int32]string)
	for i := range nodes {
		n := l.nodeNetwork(fmt.Sprintf("n%02d", i))
		if id := n.Spec.NodeID; id < 1 || !n.Spec.NodeIDConfirmed || by[id] != "" {
			t.Errorf("node %s has number %d (made sure of: %v), as has node %q", n.Name, id, n.Spec.NodeIDConfirmed,
				by[id])
		}
		by[n.Spec.NodeID] = n.Name
	}
}

func TestAnnouncementIsWrittenIfItDiffers(t *testing.T) {
	l := newLab(t)
	a := l.announcer("n1")
	said := announcement.Announcement{
		UID: "uid of n1", Version: "v1", Networks: []v1.Observed{{Name: "blue", Generation: 3}},
		Spec: v1.NodeNetworkSpec{Addresses: []v1.IP{"10.200.0.11"}, Tunnel: v1.Tunnel{Type: v1.TunnelVXLAN, MTU: 1500}},
	}
	announce := func() v1.NodeNetwork {
		t.Helper()
		if err := a.Announce(t.Context(), said); err != nil {
			t.Fatal(err)
		}
		return l.nodeNetwork("n1")
	}
	first := announce()
	if first.Status.Version != "v1" || len(first.Status.Networks) != 1 ||
		!meta.IsStatusConditionTrue(first.Status.Conditions, v1.ConditionReady) {
		t.Errorf("status %+v", first.Status)
	}
	before := len(l.Requests())
	if again := announce(); again.ResourceVersion != first.ResourceVersion {
		t.Errorf("what is said already was written again: %v", l.Requests()[before:])
	}
	said.Spec.Addresses = []v1.IP{"10.200.0.99"}
	said.NotReady = "the dataplane is away"
	next := announce()
	if next.Spec.NodeID != first.Spec.NodeID || next.Spec.Addresses[0] != "10.200.0.99" {
		t.Errorf("after a change: %+v, before: %+v", next.Spec, first.Spec)
	}
	if c := meta.FindStatusCondition(next.Status.Conditions, v1.ConditionReady); c == nil || c.Status != "False" ||
		c.Message != said.NotReady {
		t.Errorf("condition %+v", c)
	}
	said.UID = "" // the Node is gone
	if a.Announce(t.Context(), said) == nil {
		t.Error("announced without a Node")
	}
}
