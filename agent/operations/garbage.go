package operations

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/garbage"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// collection deletes attachments without sandboxes.
type collection struct {
	pods      *podmanager.Manager
	collector *garbage.Collector
}

// reasonForced is the reason of deletions that an operator forces.
const reasonForced = "forced by weftctl gc"

// CollectGarbage lists attachments that may have lost their sandboxes, and deletes an attachment if the evidence is
// sufficient.
func (c *collection) CollectGarbage(
	ctx context.Context, req *operatorv1.CollectGarbageRequest,
) (*operatorv1.CollectGarbageReply, error) {
	found, err := c.chosen(ctx, req.Force)
	if err != nil {
		return nil, err
	}
	reply := &operatorv1.CollectGarbageReply{}
	for _, f := range found {
		g := &operatorv1.Garbage{
			Key: f.At.Key.String(), Pod: podOf(f.At.Pod), Netns: f.At.Netns.Path, Reason: f.Reason, Lacks: f.Lacks,
		}
		if f.Lacks == "" && !req.DryRun {
			err := c.collector.Delete(ctx, f.At, f.Reason)
			g.Error = textOf(err)
			g.Deleted = err == nil
		}
		reply.Garbage = append(reply.Garbage, g)
	}
	return reply, nil
}

// chosen returns the attachments with the given keys, or all candidates without keys.
func (c *collection) chosen(ctx context.Context, keys []string) (found []garbage.Finding, err error) {
	all := c.pods.Attachments()
	if len(keys) == 0 {
		return c.collector.Look(ctx, all), nil
	}
	for _, key := range keys {
		i := slices.IndexFunc(all, func(at pod.Attachment) bool { return at.Key.String() == key })
		if i < 0 {
			return nil, status.Errorf(codes.NotFound,
				"no attachment has the key %q; to list keys use weftctl gc --dry-run or weftctl attachments -o json",
				key)
		}
		found = append(found, garbage.Finding{At: &all[i], Reason: reasonForced})
	}
	return found, nil
}
