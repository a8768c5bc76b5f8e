package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/garbage"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

var quiet = slog.New(slog.DiscardHandler)

func TestCollectGarbageNeedsEvidenceOrForce(t *testing.T) {
	const (
		a = "weft/a/eth0"
		b = "weft/b/eth0"
		c = "weft/c/eth0"
	)
	for name, tt := range map[string]struct {
		polls   int
		req     *operatorv1.CollectGarbageRequest
		want    string // key, lacks, deleted
		deleted string
	}{
		"before a poll": {
			0, &operatorv1.CollectGarbageRequest{},
			"[" + b + " " + "the network namespace must be missing in two polls" + " false]", "[]",
		},
		"after a poll": {
			1, &operatorv1.CollectGarbageRequest{}, "[" + b + "  true]", "[b: network namespace is gone]",
		},
		"a dry run": {1, &operatorv1.CollectGarbageRequest{DryRun: true}, "[" + b + "  false]", "[]"},
		"by force": {
			0, &operatorv1.CollectGarbageRequest{Force: []string{a, c}}, "[" + a + "  true " + c + "  true]",
			"[a: forced by weftctl gc c: forced by weftctl gc]",
		},
		"by force, a dry run": {
			0, &operatorv1.CollectGarbageRequest{Force: []string{a}, DryRun: true}, "[" + a + "  false]", "[]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, deleted := newGarbage(t)
			for range tt.polls {
				o.collector.Poll(t.Context(), o.pods.Attachments())
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

// newGarbage returns a collection with the attachments a, b and c. The network namespace of b does not exist.
func newGarbage(t *testing.T) (o *collection, deleted *[]string) {
	t.Helper()
	visible := netnstest.New(t)
	var all []*pod.Attachment
	for id, path := range map[string]string{
		"a": visible,
		"b": filepath.Join(filepath.Dir(visible), "weft-test-missing"),
		"c": netnstest.New(t),
	} {
		at := &pod.Attachment{
			Key:   pod.Key{Network: "weft", ContainerID: id, IfName: "eth0"},
			Pod:   pod.ID{Namespace: "lab", Name: id},
			Netns: pod.Netns{Path: path},
		}
		if id != "b" {
			var err error
			if at.Netns.Inode, at.Netns.Device, err = linux.InspectNamespace(path); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, at)
	}
	pods := podmanager.New(podmanager.Config{})
	pods.Restore(all)
	deleted = new([]string)
	v := garbage.New(health.New("", quiet), quiet, func(_ context.Context, at *pod.Attachment, reason string) error {
		*deleted = append(*deleted, at.Key.ContainerID+": "+reason)
		return nil
	})
	return &collection{pods: pods, collector: v}, deleted
}

func TestForcedDeletionOfAnUnknownAttachmentDeletesNothing(t *testing.T) {
	o, deleted := newGarbage(t)
	_, err := o.CollectGarbage(t.Context(), &operatorv1.CollectGarbageRequest{
		Force: []string{"weft/a/eth0", "weft/x/eth0"},
	})
	if status.Code(err) != codes.NotFound || len(*deleted) != 0 {
		t.Errorf("%v, deleted %v", err, *deleted)
	}
}

func TestFailedDeletionOfGarbageIsReported(t *testing.T) {
	o, _ := newGarbage(t)
	o.collector.Delete = func(context.Context, *pod.Attachment, string) error {
		return errors.New("event queue is full")
	}
	reply, err := o.CollectGarbage(t.Context(), &operatorv1.CollectGarbageRequest{Force: []string{"weft/a/eth0"}})
	if err != nil || reply.Garbage[0].Deleted || reply.Garbage[0].Error != "event queue is full" {
		t.Errorf("%v, %v", reply, err)
	}
}
