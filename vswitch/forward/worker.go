package forward

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/slow"
)

const (
	// patience is how many rounds shared memory is looked at in vain before its peer is asked to ring: some hundred
	// microseconds where there is nothing else to do. A ring costs the peer a system call, and us a wake-up.
	patience = 1 << 11
	// pollEvery is the number of rounds with little work after which the poller is asked for ports that were quiet.
	pollEvery = 16
	// puntOrder sizes the rings to and from the slow path: 1<<8 frames.
	puntOrder = 8
)

// worker moves frames from its ports to any port, run to completion on its own thread. All but the atomic fields, the
// bell and the rings' other ends are its alone.
type worker struct {
	engine   *Engine
	id       int
	bell     *slow.Bell
	poll     poller
	punts    *slow.Ring // to the slow path
	injects  *slow.Ring // from the slow path
	mail     atomic.Pointer[letter]
	stopping atomic.Bool
	ended    chan struct{} // closed when the worker has ended: nobody reads its mail any more
	drops    dropCounters

	snapshot *snapshot
	ports    portTable
	portsNow *portTable // what ports was read from
	macs     *macTable
	seconds  secondClock
	clock    func() uint32 // reads seconds
	now      uint32        // of the clock, once a round
	news     []*newsRing   // by the worker that writes; nil: of a single worker
	ways     ways          // cache of routes
	untraced traceLine     // in place of a trace line that will be overwritten
	stock
	active []*inlet      // to receive from
	dirty  []*attachment // with frames to transmit
	rounds uint
	worked time.Duration // on frames since the poller was asked
	turnAt time.Duration // by the stopwatch: when the turn began
	spin   spinner

	stormLimit int                  // copies a second; 0: none
	stopwatch  func() time.Duration // since some moment

	identification uint16 // of the last envelope
	opening        bool   // the frame at hand has come out of an envelope
	wrapping       bool   // the frame at hand is in an envelope

	// Of the frame that the verdict is about:
	unresolved netip.Addr // its next hop
	how        manner
}

func newWorker(e *Engine, id int) (*worker, error) {
	bell, err := slow.NewBell()
	if err != nil {
		return nil, err
	}
	w := &worker{
		engine: e, id: id, bell: bell, ended: make(chan struct{}),
		punts: slow.NewRing(puntOrder), injects: slow.NewRing(puntOrder),
		stock: newStock(),
		macs:  newMACTable(), seconds: secondClock{start: time.Now()}, spin: newSpinner(),
	}
	w.clock = w.seconds.read
	w.stopwatch = func() time.Duration { return time.Since(w.seconds.start) }
	if err := w.poll.open(bell.Descriptor()); err != nil {
		return nil, fmt.Errorf("worker %d: %w", id, err)
	}
	w.refresh()
	return w, nil
}

func (w *worker) close() {
	_ = w.poll.close()
	_ = w.bell.Close()
}

// run is the worker's life. Its thread is its own: frames do not wait for the Go scheduler.
func (w *worker) run(ctx context.Context) error {
	runtime.LockOSThread() // not unlocked: the thread, which has a name of its own, ends with the worker
	nameThread(fmt.Sprintf("%s%d", WorkerThreads, w.id))
	defer close(w.ended)
	stop := context.AfterFunc(ctx, func() {
		w.stopping.Store(true)
		w.bell.Ring()
	})
	defer stop()
	for idle := 0; !w.stopping.Load(); {
		switch {
		case w.round():
			idle = 0
		case len(w.active) > 0:
			idle = 0 // shared memory is looked at
		case idle < w.spin.looks:
			idle++
		default:
			began := time.Now()
			if err := w.sleep(); err != nil {
				return fmt.Errorf("worker %d: %w", w.id, err)
			}
			w.spin.slept(time.Since(began))
			w.seconds.slept()
			idle = 0
		}
	}
	return nil
}

// WorkerThreads is how the names of workers' threads begin; the worker's number follows.
const WorkerThreads = "weft_wk_"

// nameThread names the caller's thread, so that operators can find it and give it a processor. The name of the main thread is the
// process's, and stays.
func nameThread(name string) {
	if unix.Gettid() == unix.Getpid() {
		return
	}
	if text, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
	}
}

// round does what there is to do once, and says whether there was anything.
func (w *worker) round() bool {
	w.refresh()
	w.tick()
	w.readMail()
	busy := w.takeInjected()
	w.rounds++
	if len(w.active) == 0 || w.rounds%pollEvery == 0 || w.worked >= turnTime {
		w.worked = 0
		w.wake(w.poll.ready())
	}
	w.turnAt = w.stopwatch()
	for i := 0; i < len(w.active); {
		n, more := w.receive(w.active[i])
		busy = busy || n > 0
		if more || w.active[i].isWorthALook(n) {
			i++
			continue
		}
		// Nothing waits there: its readiness is the poller's to tell.
		w.active[i].active = false
		w.active = slices.Delete(w.active, i, i+1)
	}
	return busy
}

// isWorthALook says whether to look again at a port that gave n frames, fewer than asked for. Shared memory that was quiet for
// long is not: its peer is asked to announce the next frame, unless that has come meanwhile.
func (i *inlet) isWorthALook(n int) bool {
	switch {
	case i.of.shared == nil:
		return false
	case n > 0:
		i.quiet = 0
		return true
	}
	if i.quiet++; i.quiet < patience {
		return true
	}
	i.quiet = 0
	if !i.Arm(true) {
		return false
	}
	i.Arm(false)
	return true
}

// refresh takes the newest snapshot and ports. Ports that are gone leave the active list.
func (w *worker) refresh() {
	w.snapshot = w.engine.live.Load()
	now := w.engine.ports.Load()
	if now == w.portsNow {
		return
	}
	w.ports, w.portsNow = *now, now
	w.active = slices.DeleteFunc(w.active, func(i *inlet) bool { return w.ports.at(i.of.index) != i.of })
	for _, a := range w.ports.interfaces {
		if a != nil && a.shared != nil {
			w.begin(a.inlets)
		}
	}
}

// begin looks at shared memory that nobody has looked at yet.
func (w *worker) begin(inlets []*inlet) {
	for _, i := range inlets {
		if i.owner == w && !i.begun {
			i.begun = true
			w.activate(i)
		}
	}
}

// wake puts the queues that the poller names on the active list.
func (w *worker) wake(events []unix.EpollEvent) {
	for _, e := range events {
		a, n := w.ports.at(uint32(e.Fd)), int(e.Pad)
		if a == nil || n >= len(a.inlets) || a.failure.Load() != nil {
			continue
		}
		if i := a.inlets[n]; !i.active && i.owner == w {
			w.activate(i)
		}
	}
}

// activate puts a queue at the head of the active list, before queues that have been busy. It need not announce frames any more.
func (w *worker) activate(i *inlet) {
	i.Arm(false)
	i.active = true
	w.active = slices.Insert(w.active, 0, i)
}

// sleep waits for a frame or the bell: arm, look again, sleep. Ports that are not active are armed already.
func (w *worker) sleep() error {
	w.bell.Arm()
	defer w.bell.Disarm()
	pending := w.mail.Load() != nil || !w.injects.Empty() || w.stopping.Load() || w.engine.ports.Load() != w.portsNow
	if pending {
		return nil
	}
	events, err := w.poll.wait()
	w.wake(events)
	return err
}
