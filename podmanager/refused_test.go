package podmanager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// refusals returns the loop's records of events that were refused before the queue, and the number of their repeats.
func (n *node) refusals(t *testing.T) (refusals []string, repeats int) {
	t.Helper()
	for _, r := range n.loop.History(0) {
		if r.Started.IsZero() {
			refusals = append(refusals, r.Event+": "+r.Err)
			repeats += r.Repeats
		}
	}
	return refusals, repeats
}

func TestAddRefusedBeforeTheQueueIsInTheLog(t *testing.T) {
	for name, tt := range map[string]struct {
		netns, want string
	}{
		"no network namespace": {"/run/netns/nowhere", "network namespace"},
		"relative path":        {"netns", "is not an absolute path"},
		"new pods are paused":  {"/run/netns/a", "upgrade"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if name == "new pods are paused" {
				n.paused = "upgrade"
			}
			for range 3 {
				n.refusedAdd(t, addOf("c1", tt.netns))
			}
			refusals, repeats := n.refusals(t)
			if len(refusals) != 1 || repeats != 2 {
				t.Fatalf("%d records of refusals with %d repeats, want 1 with 2: %q", len(refusals), repeats, refusals)
			}
			if !strings.HasPrefix(refusals[0], "add pod shop/cart-0 eth0") || !strings.Contains(refusals[0], tt.want) {
				t.Errorf("the record says %q, want the pod and %q", refusals[0], tt.want)
			}
		})
	}
}

func TestAnErrorOfAnEditNamesThePodOnce(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	_, err := n.Edits().Apply(t.Context(), pod.ID{Namespace: "shop", Name: "cart-0"},
		map[string]string{pod.AnnotationCustom: "t1/unknown"})
	if err == nil || strings.Count(err.Error(), "shop/cart-0") != 1 || !strings.Contains(err.Error(), "t1/unknown") {
		t.Errorf("error %v, want one with the annotation that names the pod once", err)
	}
	if refusals, _ := n.refusals(t); len(refusals) != 1 || strings.Count(refusals[0], "shop/cart-0") != 1 {
		t.Errorf("records of refusals %q, want one that names the pod once", refusals)
	}
}

func TestAddressRefusedBeforeTheQueueIsInTheLog(t *testing.T) {
	n := newNode(t)
	n.askedOrRepeated(t, awaiting())
	for _, given := range [][]*weftv1.IP{nil, {{Address: "10.9.0.2"}}} {
		req := answered()
		req.DelegatedIps = given
		if n.address(t, req).GetError() == nil {
			t.Errorf("%v was accepted", given)
		}
	}
	refusals, _ := n.refusals(t)
	if len(refusals) != 2 || !strings.HasPrefix(refusals[0], "address pod shop/cart-0 eth0") ||
		!strings.Contains(refusals[0]+refusals[1], "returned no address") {
		t.Errorf("records of refusals: %q, want two of the pod's addresses", refusals)
	}
}

func TestRefusalForAnotherReasonHasItsOwnRecord(t *testing.T) {
	n := newNode(t)
	n.refusedAdd(t, addOf("c1", "netns"))
	n.refusedAdd(t, addOf("c1", "/run/netns/nowhere"))
	n.refusedAdd(t, addOf("c2", "/run/netns/nowhere"))
	n.refusedAdd(t, addOf("c1", "netns"))
	if refusals, repeats := n.refusals(t); len(refusals) != 4 || repeats != 0 {
		t.Errorf("%d records with %d repeats, want 4 without: %q", len(refusals), repeats, refusals)
	}
}

func TestFirstStepOfAddIncludesItsPreparation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		inspect := n.machine.inspect
		n.machine.inspect = func(ctx context.Context, path string) (pod.Netns, error) {
			<-time.After(7 * time.Second)
			return inspect(ctx, path)
		}
		n.add(t, "c1", "/run/netns/a")
		records := n.loop.History(0)
		last := records[len(records)-1]
		if step := last.Steps[0]; step.Took != 7*time.Second {
			t.Errorf("the step %q of %s took %s, want 7s", step.Name, last.Event, step.Took)
		}
	})
}

// The agent has such a manager while it waits for its Node of the API server.
func TestManagerWithoutLoopRejectsAdds(t *testing.T) {
	for name, ready := range map[string]error{"not ready": errors.New("the node is not known"), "ready": nil} {
		of := &machine{
			inspect: func(context.Context, string) (pod.Netns, error) {
				return pod.Netns{Path: "/run/netns/a", Inode: 1}, nil
			},
			linkAlias: func(context.Context, pod.Netns, string) (string, bool, error) { return "", false, nil },
			void:      func(context.Context, pod.Key) error { return nil },
			started:   func() bool { return false },
		}
		m := New(Config{Node: of, Queue: of, Admission: &node{machine: of, notReady: ready}})
		reply, err := m.Add(t.Context(), addOf("c1", "/run/netns/a"))
		if err != nil || reply.GetError().GetCode() != uint32(pod.CodeTryAgain) ||
			reply.GetError().GetDetails() != starting {
			t.Errorf("%s: %v, %v, want code %d", name, reply, err, pod.CodeTryAgain)
		}
	}
}

// An operator sees what a pod requested, also if it was refused before its event ran. The runtime sent the annotations.
func TestRecordOfARefusedPodHasItsRequest(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, netns := range map[string]string{
		"before the queue": "/run/netns/nowhere",
		"by a handler":     "/run/netns/a",
	} {
		n := newNode(t)
		n.onConnect = func(context.Context, *pod.AddPod) error { return errors.New("annotation invalid") }
		req := addOf("c1", netns)
		req.HasAnnotations = true
		req.Annotations = map[string]string{
			"contivpp.io/custom-if": "tap1/tub",
			"contivpp.io/ip-pools":  long,
			"contivpp.io/unknown":   "x",
			"other":                 "x",
		}
		n.refusedAdd(t, req)
		records := n.loop.History(0)
		got := records[len(records)-1].Request
		if len(got) != 2 || got["contivpp.io/custom-if"] != "tap1/tub" || len(got["contivpp.io/ip-pools"]) > 1024 {
			t.Errorf("refused %s: the record has %v", name, got)
		}
	}
}
