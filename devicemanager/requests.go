package devicemanager

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weftnet/weft/pod"
)

// undoTimeout bounds the release of the allocations of a failed request.
const undoTimeout = 10 * time.Second

// requests makes and releases allocations by events of the loop, and counts the requests of kubelet in progress.
type requests struct {
	loop    doer
	timeout time.Duration // for one allocation
	disk    *disk
	log     *slog.Logger

	// Allocate and Claim requests in progress: kubelet does not list their devices yet, and their files are being made
	unanswered atomic.Int64
}

// begin counts a request of kubelet until ended is called.
func (r *requests) begin() (ended func()) {
	r.unanswered.Add(1)
	return func() { r.unanswered.Add(-1) }
}

// allocate makes one allocation in the event loop.
func (r *requests) allocate(ctx context.Context, devices []string) (*pod.Allocation, error) {
	if err := r.disk.prepare(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	ev := &pod.AllocateDevice{Devices: devices}
	rec, err := r.loop.Do(ctx, ev)
	if err != nil {
		return nil, err
	}
	r.log.Info("devices allocated", "devices", strings.Join(devices, " "), "allocation", ev.Allocation.ID,
		"took", rec.Took)
	return ev.Allocation, nil
}

// takeBack releases the allocations of a failed request, which kubelet does not learn.
func (r *requests) takeBack(ctx context.Context, made []*pod.Allocation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, a := range made {
		r.release(ctx, a.ID, "the allocation of another container of the request failed")
	}
}

// release releases an allocation in the event loop. The collector finds it later if that fails.
func (r *requests) release(ctx context.Context, id, reason string) bool {
	_, err := r.loop.Do(ctx, &pod.ReleaseDevice{Allocation: id, Reason: reason})
	if err != nil {
		r.log.Warn("allocation not released", "allocation", id, "err", err)
		return false
	}
	r.log.Info("allocation released", "allocation", id, "reason", reason)
	return true
}
