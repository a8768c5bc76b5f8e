package podmanager

import (
	"context"
	"testing"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (n *node) collect(t *testing.T, valid ...string) *weftv1.CollectReply {
	t.Helper()
	req := &weftv1.CollectRequest{Caller: caller(), Network: "weft"}
	for _, c := range valid {
		req.Valid = append(req.Valid, &weftv1.Attachment{ContainerId: c, IfName: "eth0"})
	}
	reply, err := n.Collect(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestACollectionRemovesWhatIsNotListed(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.add(t, "c2", "/run/netns/b")
	n.set(func() { n.now = start.Add(time.Minute) })
	reply := n.collect(t, "c1")
	if reply.GetError() != nil || len(reply.GetRemoved()) != 1 || reply.GetRemoved()[0].GetContainerId() != "c2" {
		t.Errorf("got %v", reply)
	}
	n.want(t, "c1")
	n.collect(t)
	n.want(t)
}

func TestACollectionSparesTheYoung(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.set(func() { n.now = start.Add(defaultGrace - time.Millisecond) })
	n.collect(t)
	n.want(t, "c1")
	n.set(func() { n.now = start.Add(defaultGrace) })
	n.collect(t)
	n.want(t)
}

func TestACollectionLeavesOtherNetworksAlone(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.set(func() { n.now = start.Add(time.Hour) })
	reply, err := n.Collect(t.Context(), &weftv1.CollectRequest{Caller: caller(), Network: "other"})
	if err != nil || reply.GetError() != nil || len(reply.GetRemoved()) > 0 {
		t.Errorf("got %v, %v", reply, err)
	}
	n.want(t, "c1")
	if reply, _ := n.Collect(t.Context(), &weftv1.CollectRequest{Caller: caller()}); reply.GetError().GetCode() != 7 {
		t.Errorf("without a network it gave %v", reply)
	}
}

func TestACollectionSparesWhatIsBeingAdded(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.set(func() { n.now = start.Add(time.Hour) })
	ended := n.underWay(keyOfContainer("c1")) // a repeated ADD
	n.collect(t)
	n.want(t, "c1")
	ended()
	n.collect(t)
	n.want(t)
}

func TestACollectionGoesOnPastFailures(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.add(t, "c2", "/run/netns/b")
	n.set(func() { n.now = start.Add(time.Hour) })
	n.committer.Before(func(_ context.Context, c eventloop.Change) error {
		for _, s := range c.Set {
			if s.Key == "tap/"+keyOfContainer("c1").String() {
				return pod.Errorf(pod.CodeRefused, "delete tap: no reply")
			}
		}
		return nil
	})
	n.committer.Stuck(func(c eventloop.Change) []string {
		for _, s := range c.Set {
			if s.Key == "tap/"+keyOfContainer("c1").String() {
				return []string{s.Key}
			}
		}
		return nil
	})
	reply := n.collect(t)
	wantError(t, reply.GetError(), 105, "delete tap: no reply")
	if len(reply.GetRemoved()) != 1 || reply.GetRemoved()[0].GetContainerId() != "c2" {
		t.Errorf("removed %v", reply.GetRemoved())
	}
	n.committer.Before(nil)
}
