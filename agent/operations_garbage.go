package agent

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// reasonForced is the reason of deletions that an operator forces.
const reasonForced = "forced by weftctl gc"

// CollectGarbage lists attachments whose sandboxes may be gone, and deletes them.
func (o *operations) CollectGarbage(ctx context.Context, req *weftv1.CollectGarbageRequest) (*weftv1.CollectGarbageReply, error) {
	found, err := o.garbage(ctx, req.Force)
	if err != nil {
		return nil, err
	}
	reply := &weftv1.CollectGarbageReply{}
	for _, f := range found {
		g := &weftv1.Garbage{
			Key: f.at.Key.String(), Pod: &weftv1.Pod{Namespace: f.at.Pod.Namespace, Name: f.at.Pod.Name, Uid: f.at.Pod.UID},
			Netns: f.at.Netns.Path, Reason: f.reason, Lacks: f.lacks,
		}
		if f.lacks == "" && !req.DryRun {
			if err := o.vanished.delete(ctx, f.at, f.reason); err != nil {
				g.Error = err.Error()
			} else {
				g.Deleted = true
			}
		}
		reply.Garbage = append(reply.Garbage, g)
	}
	return reply, nil
}

// garbage returns what may be collected, or if keys are given the attachments of these.
func (o *operations) garbage(ctx context.Context, keys []string) (found []finding, err error) {
	all := o.pods.Attachments()
	if len(keys) == 0 {
		return o.vanished.look(ctx, all), nil
	}
	for _, key := range keys {
		i := slices.IndexFunc(all, func(at pod.Attachment) bool { return at.Key.String() == key })
		if i < 0 {
			return nil, status.Errorf(codes.NotFound, "no attachment has the key %q; weftctl gc --dry-run and weftctl attachments -o json list them", key)
		}
		found = append(found, finding{at: &all[i], reason: reasonForced})
	}
	return found, nil
}
