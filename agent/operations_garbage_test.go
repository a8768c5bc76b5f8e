package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func TestAnOperatorCollectsGarbageOnEvidenceOrByForce(t *testing.T) {
	const a, b, c = "weft/a/eth0", "weft/b/eth0", "weft/c/eth0"
	for name, tt := range map[string]struct {
		polls   int
		req     *weftv1.CollectGarbageRequest
		want    string // key, lacks, deleted
		deleted string
	}{
		"before a poll":       {0, &weftv1.CollectGarbageRequest{}, "[" + b + " " + lacksPoll + " false]", "[]"},
		"after a poll":        {1, &weftv1.CollectGarbageRequest{}, "[" + b + "  true]", "[b: network namespace is gone]"},
		"a dry run":           {1, &weftv1.CollectGarbageRequest{DryRun: true}, "[" + b + "  false]", "[]"},
		"by force":            {0, &weftv1.CollectGarbageRequest{Force: []string{a, c}}, "[" + a + "  true " + c + "  true]", "[a: forced by weftctl gc c: forced by weftctl gc]"},
		"by force, a dry run": {0, &weftv1.CollectGarbageRequest{Force: []string{a}, DryRun: true}, "[" + a + "  false]", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			o, deleted := garbageWorld(t)
			for range tt.polls {
				o.vanished.poll(t.Context(), o.pods.Attachments())
			}
			reply, err := o.CollectGarbage(t.Context(), tt.req)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, g := range reply.Garbage {
				got = append(got, fmt.Sprint(g.Key, " ", g.Lacks, " ", g.Deleted))
			}
			if fmt.Sprint(got) != tt.want || fmt.Sprint(*deleted) != tt.deleted {
				t.Errorf("replied %v, want %s; deleted %v, want %s", got, tt.want, *deleted, tt.deleted)
			}
		})
	}
}

// garbageWorld has the attachments a, b and c, the second without a network namespace.
func garbageWorld(t *testing.T) (o *operations, deleted *[]string) {
	t.Helper()
	all := evidence{all: []string{"a", "b", "c"}, missing: []string{"b"}}.make(t)
	pods := podmanager.New(podmanager.Config{})
	pods.Restore([]*pod.Attachment{&all[0], &all[1], &all[2]})
	deleted = new([]string)
	v := newVanished(health.New("", quiet), quiet, func(_ context.Context, at *pod.Attachment, reason string) error {
		*deleted = append(*deleted, at.Key.ContainerID+": "+reason)
		return nil
	})
	return &operations{pods: pods, vanished: v}, deleted
}

func TestAForcedDeletionOfAnUnknownAttachmentDeletesNothing(t *testing.T) {
	o, deleted := garbageWorld(t)
	_, err := o.CollectGarbage(t.Context(), &weftv1.CollectGarbageRequest{Force: []string{"weft/a/eth0", "weft/x/eth0"}})
	if status.Code(err) != codes.NotFound || len(*deleted) != 0 {
		t.Errorf("%v, deleted %v", err, *deleted)
	}
}

func TestAFailedDeletionOfGarbageIsReported(t *testing.T) {
	o, _ := garbageWorld(t)
	o.vanished.delete = func(context.Context, *pod.Attachment, string) error { return errors.New("event queue is full") }
	reply, err := o.CollectGarbage(t.Context(), &weftv1.CollectGarbageRequest{Force: []string{"weft/a/eth0"}})
	if err != nil || reply.Garbage[0].Deleted || reply.Garbage[0].Error != "event queue is full" {
		t.Errorf("%v, %v", reply, err)
	}
}
