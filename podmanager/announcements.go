package podmanager

import (
	"context"
	"slices"
	"time"

	"github.com/weftnet/weft/pod"
)

// startTime is longer than a runtime needs for all ADDs of a new sandbox. Containers start afterwards.
const startTime = 30 * time.Second

// announcements tell the neighbours of new attachments their addresses.
type announcements struct {
	*attachments
	announcer Announcer
}

// announce announces the addresses of a connected pod, unless its call is cancelled meanwhile.
func (a announcements) announce(ctx context.Context, c *call, ev *pod.AddPod) {
	if ev.Repeated || a.mayRun(ev.Attachment) { // a program may be connected
		return
	}
	ctx, end := c.bound(ctx)
	defer end()
	a.announcer.Announce(ctx, ev.Attachment)
}

// mayRun reports whether containers of the pod may run: a sandbox with an older attachment gets a further one.
func (a announcements) mayRun(added *pod.Attachment) bool {
	return slices.ContainsFunc(a.Attachments(), func(of pod.Attachment) bool {
		return of.Key.ContainerID == added.Key.ContainerID && added.Created.Sub(of.Created) > startTime
	})
}
