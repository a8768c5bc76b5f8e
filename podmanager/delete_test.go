package podmanager

import (
	"context"
	"errors"
	"testing"

	"github.com/weftnet/weft/eventloop"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func TestADeleteThatWasNeverAddedSucceeds(t *testing.T) {
	n := newNode(t)
	for range 2 {
		if err := n.del(t, "c1"); err != nil {
			t.Error(err)
		}
	}
	n.want(t)
}

func TestADeleteDuringTheAddCancelsIt(t *testing.T) {
	n := newNode(t)
	wiring := make(chan struct{})
	n.committer.Before(func(ctx context.Context, c eventloop.Change) error {
		if !c.Atomic {
			return nil
		}
		close(wiring)
		<-ctx.Done()
		return ctx.Err()
	})
	added := make(chan *weftv1.Error, 1)
	go func() {
		reply, _ := n.Add(context.Background(), addOf("c1", "/run/netns/a"))
		added <- reply.GetError()
	}()
	<-wiring
	if err := n.del(t, "c1"); err != nil {
		t.Errorf("DEL: %v", err)
	}
	wantError(t, <-added, 11, "cancelled")
	n.want(t)
}

func TestADeleteReportsOnlyWhatCouldNotBeRemoved(t *testing.T) {
	broken := errors.New("no reply of the dataplane")
	tests := map[string]struct {
		spoil func(n *node)
		code  uint
	}{
		"what is tried again is a success": {func(n *node) {
			n.committer.After(func(context.Context, eventloop.Change) error { return broken })
		}, 0},
		"what is stuck is not": {func(n *node) {
			n.committer.Before(func(context.Context, eventloop.Change) error { return broken })
			n.committer.Stuck(func(eventloop.Change) []string { return []string{"tap/x"} })
		}, 105},
		"what is not saved is a success: the loop owes it": {func(n *node) {
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

func TestADeleteBeforeTheAgentIsReadySaysStarting(t *testing.T) {
	n := newNode(t)
	n.set(func() { n.notReady = errors.New("resync under way") })
	if err := n.del(t, "c1"); err.GetCode() != 11 || err.GetDetails() != starting {
		t.Errorf("got %v", err)
	}
}

func TestADeleteIsServedWhileNewPodsArePaused(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.set(func() { n.paused = "maintenance" })
	if err := n.del(t, "c1"); err != nil {
		t.Error(err)
	}
	n.want(t)
}
