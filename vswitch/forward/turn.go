package forward

import (
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// A worker serves its queues round robin. The sender decides what a frame costs: flooding it in a large bridge domain takes up to a
// thousand times as long as dropping it. A turn is therefore limited by time and not by frames: its burst follows the measured cost of
// the queue's last frames. All busy queues get the same share of the worker, and a quiet queue waits for at most one turn of each.
const (
	// turnTime is how long a turn should take at most.
	turnTime = 50 * time.Microsecond
	// injectedBurst is the number of frames that a round takes from the slow path.
	injectedBurst = 64
)

// turnEnds ends a turn of n frames, which took until now, and begins the next one. A turn without frames is part of the next: looking
// at shared memory takes less time than reading the clock. Inlined into receive it made each routed packet 20 ns slower
// (BenchmarkMemif/L3), by the layout of the code alone.
//
//go:noinline
func (w *worker) turnEnds(i *inlet, n int) {
	now := w.stopwatch()
	i.pace(n, now-w.turnAt)
	w.worked += now - w.turnAt
	w.turnAt = now
}

// pace sets the burst of the next turn after a turn of n frames. The burst at most doubles: the next frames may cost more.
func (i *inlet) pace(n int, took time.Duration) {
	fit := int(time.Duration(n) * turnTime / max(took, 1))
	i.burst = min(max(fit, 1), 2*i.burst, frame.VectorSize)
}
