package ctl_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/ctl/ctltest"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func TestGarbageCollectionFailsWhenADeleteFails(t *testing.T) {
	replies := ctltest.Sample(now)
	replies.Garbage = &operatorv1.CollectGarbageReply{Garbage: []*operatorv1.Garbage{
		{Key: "weft/a/eth0", Reason: "pod is deleted", Deleted: true}, {
			Key:    "weft/b/eth0",
			Reason: "pod is deleted",
			Error:  "event queue is full",
		},
	}}
	out, code, _ := answer(t, replies, "gc")
	if code != 1 || !strings.Contains(out, "failed: event queue is full") ||
		!strings.HasSuffix(out, "weftctl: 1 attachment not deleted\n") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestGarbageCollectionSendsItsFlags(t *testing.T) {
	_, _, agent := answer(t, ctltest.Sample(now), "gc", "--dry-run", "--force", "weft/a/eth0", "--force", "weft/b/eth0")
	want := &operatorv1.CollectGarbageRequest{DryRun: true, Force: []string{"weft/a/eth0", "weft/b/eth0"}}
	if requests := agent.Requests(); len(requests) != 1 || !proto.Equal(requests[0], want) {
		t.Errorf("requests %v, want %v", requests, want)
	}
}
