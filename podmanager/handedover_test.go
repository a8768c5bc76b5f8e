package podmanager

import (
	"context"
	"testing"

	"github.com/weftnet/weft/pod"
)

func TestAnOlderSandboxIsKnownWithoutWhatItHandedOver(t *testing.T) {
	n := newNode(t)
	if reply, err := n.Add(context.Background(), addOf("old", "/run/netns/a")); err != nil || reply.GetError() != nil {
		t.Fatal(reply, err)
	}
	old := n.Attachments()[0]
	n.wiring = func(_ context.Context, ev *pod.AddPod) error {
		less := clone(&old)
		less.Interfaces[0].Addresses = nil
		ev.HandedOver = append(ev.HandedOver, less)
		return nil
	}
	if reply, err := n.Add(context.Background(), addOf("new", "/run/netns/b")); err != nil || reply.GetError() != nil {
		t.Fatal(reply, err)
	}
	got, ok := n.Attachment(old.Key)
	if !ok || len(got.Interfaces) != 1 || len(got.Interfaces[0].Addresses) != 0 {
		t.Errorf("the old sandbox is known as %+v", got)
	}
}
