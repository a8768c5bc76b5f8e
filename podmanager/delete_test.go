package podmanager

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func TestDeleteOfUnknownAttachmentSucceeds(t *testing.T) {
	n := newNode(t)
	for range 2 {
		if err := n.del(t, "c1"); err != nil {
			t.Error(err)
		}
	}
	n.want(t)
}

func TestDeleteDuringAddCancelsTheAdd(t *testing.T) {
	n := newNode(t)
	connecting := make(chan struct{})
	n.committer.Before(func(ctx context.Context, c eventloop.Change) error {
		if !c.Atomic {
			return nil
		}
		close(connecting)
		<-ctx.Done()
		return ctx.Err()
	})
	added := make(chan *weftv1.Error, 1)
	go func() {
		reply, _ := n.Add(context.Background(), addOf("c1", "/run/netns/a"))
		added <- reply.GetError()
	}()
	<-connecting
	if err := n.del(t, "c1"); err != nil {
		t.Errorf("DEL: %v", err)
	}
	wantError(t, <-added, 11, "cancelled")
	n.want(t)
}

func TestDeleteFailsOnlyForStuckObjects(t *testing.T) {
	broken := errors.New("no reply of the dataplane")
	tests := map[string]struct {
		spoil func(n *node)
		code  uint
	}{
		"success while removals are retried": {func(n *node) {
			n.committer.After(func(context.Context, eventloop.Change) error { return broken })
		}, 0},
		"failure for a stuck removal": {func(n *node) {
			n.committer.Before(func(context.Context, eventloop.Change) error { return broken })
			n.committer.Stuck(func(eventloop.Change) []string { return []string{"tap/x"} })
		}, 105},
		"success if the state is not saved": {func(n *node) {
			n.saver.Before(func(context.Context, []eventloop.Saved) error { return broken })
		}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.add(t, "c1", "/run/netns/a")
			tt.spoil(n)
			if err := n.del(t, "c1"); uint(err.GetCode()) != tt.code {
				t.Errorf("got %v, want code %d", err, tt.code)
			}
			n.committer.Before(nil)
			n.committer.After(nil)
			n.saver.Before(nil)
			if _, known := n.Attachment(keyOfContainer("c1")); known {
				t.Error("the attachment is still known")
			}
		})
	}
}

func TestDeleteBeforeTheAgentIsReadyReportsStarting(t *testing.T) {
	n := newNode(t)
	n.set(func() { n.notReady = errors.New("resync under way") })
	if err := n.del(t, "c1"); err.GetCode() != 11 || err.GetDetails() != starting {
		t.Errorf("got %v", err)
	}
}

func TestDeleteIsServedWhileNewPodsArePaused(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.set(func() { n.paused = "maintenance" })
	if err := n.del(t, "c1"); err != nil {
		t.Error(err)
	}
	n.want(t)
}

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

func TestCollectRemovesUnlistedAttachments(t *testing.T) {
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

func TestCollectSkipsYoungAttachments(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.set(func() { n.now = start.Add(defaultGrace - time.Millisecond) })
	n.collect(t)
	n.want(t, "c1")
	n.set(func() { n.now = start.Add(defaultGrace) })
	n.collect(t)
	n.want(t)
}

func TestCollectSkipsOtherNetworks(t *testing.T) {
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

func TestCollectSkipsAttachmentsDuringAdd(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.set(func() { n.now = start.Add(time.Hour) })
	ended := n.underWay(keyOfContainer("c1"), newCall(t.Context(), &pod.Request{})) // a repeated ADD
	n.collect(t)
	n.want(t, "c1")
	ended()
	n.collect(t)
	n.want(t)
}

func TestCollectContinuesAfterFailures(t *testing.T) {
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
