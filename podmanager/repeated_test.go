package podmanager

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Nothing that a new pod needs, or that hinders it, matters to a pod that is connected already.
func TestRepeatedAddIsAnsweredWhereANewPodIsRefused(t *testing.T) {
	broken := errors.New("it does not answer")
	for name, hinder := range map[string]func(n *node){
		"new pods are paused": func(n *node) { n.paused = "maintenance" },
		"no annotations": func(n *node) {
			n.cluster.annotations = func(context.Context, pod.ID) (map[string]string, string, error) {
				return nil, "", broken
			}
		},
		"no selected networks": func(n *node) {
			n.cluster.selected = func(context.Context, *pod.Request) ([]pod.InterfaceRequest, error) {
				return nil, broken
			}
		},
		"no claims": func(n *node) {
			n.devices.claimed = func(context.Context, pod.ID) ([]pod.Grant, error) { return nil, broken }
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			request := func(container string) *weftv1.AddRequest {
				req := addOf(container, "/run/netns/a")
				req.HasAnnotations = name == "new pods are paused"
				return req
			}
			first, err := n.Add(t.Context(), request("c1"))
			if err != nil || first.GetError() != nil {
				t.Fatalf("%v, %v", first, err)
			}
			n.set(func() { hinder(n); n.alias["/run/netns/a"] = "weft:weft/c1/eth0" })
			second, err := n.Add(t.Context(), request("c1"))
			if err != nil || bytesOf(t, first) != bytesOf(t, second) {
				t.Errorf("first %v\nthen %v, %v", first, second, err)
			}
			found, err := n.Find(t.Context(), &weftv1.FindRequest{
				Caller:     caller(),
				Attachment: request("c1").Attachment,
				Netns:      "/run/netns/a",
			})
			if err != nil || found.GetError() != nil || found.GetFound() == nil {
				t.Errorf("found %v, %v", found, err)
			}
			n.set(func() { delete(n.alias, "/run/netns/a") })
			if other, err := n.Add(t.Context(), request("c2")); err != nil || other.GetError() == nil {
				t.Errorf("a new pod: %v, %v", other, err)
			}
		})
	}
}

// An event that was prepared as a repetition makes no pod if a DEL came before it.
func TestRepeatedAddAfterADelMakesNoPod(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.machine.void = func(context.Context, pod.Key) error {
		if refused := n.del(t, "c1"); refused != nil {
			return errors.New(refused.String())
		}
		return nil
	}
	n.set(func() { n.alias["/run/netns/a"] = "weft:weft/c1/eth0" })
	wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/a")), 11, "a concurrent DEL removed it")
	n.want(t)
}

// Once a program may be connected to a memif of the pod, the agent must not be.
func TestOnlyTheADDThatConnectsAPodAnnouncesIt(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.set(func() { n.alias["/run/netns/a"] = "weft:weft/c1/eth0" })
	n.add(t, "c1", "/run/netns/a")
	n.onConnect = func(context.Context, *pod.AddPod) error { return errors.New("no room") }
	n.refusedAdd(t, addOf("c2", "/run/netns/b"))
	n.onConnect = nil
	n.set(func() { n.now = n.now.Add(time.Minute) })
	later := addOf("c1", "/run/netns/a")
	later.Attachment.IfName = "net1"
	if reply, err := n.Add(t.Context(), later); err != nil || reply.GetError() != nil {
		t.Fatalf("%v, %v", reply, err)
	}
	if want := []string{"c1"}; !slices.Equal(n.announced, want) {
		t.Errorf("announced %v, want %v", n.announced, want)
	}
}

func TestADELEndsTheAnnouncementOfItsPod(t *testing.T) {
	n := newNode(t)
	ended := false
	n.announcing = func(ctx context.Context) {
		if refused := n.del(t, "c1"); refused != nil {
			t.Error(refused)
		}
		select {
		case <-ctx.Done():
			ended = true
		case <-time.After(time.Minute):
		}
	}
	if _, err := n.Add(t.Context(), addOf("c1", "/run/netns/a")); err != nil {
		t.Fatal(err)
	}
	if !ended {
		t.Error("the announcement goes on after the DEL")
	}
}
