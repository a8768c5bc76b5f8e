package forward

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/slow"
)

// worker forwards frames from its receive queues to any port, run to completion on its own thread. Other goroutines use
// only the atomic fields, the bell, the requests and the other ends of the rings.
type worker struct {
	view
	engine   *Engine
	bell     *slow.Bell
	requests requests
	stopping atomic.Bool
	portsNow *portTable // the table that ports was copied from

	rx           rxScheduler
	buffers      bufferCache
	tx           txQueues
	l2           l2Forwarder
	vtep         vtep
	slow         slowLink
	acl          accessControl
	routes       routeCache
	untracedLine traceLine // replaces trace lines that would be overwritten
	spin         spinner
	load         loadMeter
	tracing      *tracing // nil: off
	fragmentID   uint32   // identification of the last IPv6 packet that was fragmented

	// Of the frame that was decided last:
	unresolved netip.Addr // next hop that has no neighbour entry
	detail     traceDetail
}

// view is the state that the parts of a worker share: the configuration that they use until the next refresh, and the
// counters.
type view struct {
	id        int
	snapshot  *snapshot
	ports     portTable
	drops     dropCounters
	stopwatch func() time.Duration // monotonic time since the start of the engine
	now       time.Duration        // of the vector, if timed; see instant
	timed     bool
	path      *tracePath // of the frame that is traced; nil: it is not
}

func newWorker(e *Engine, id int) (*worker, error) {
	bell, err := slow.NewBell()
	if err != nil {
		return nil, err
	}
	start := e.start // workers share the clock, because they share policers
	w := &worker{
		engine:     e,
		fragmentID: rand.Uint32(),
		bell:       bell,
		buffers:    newBufferCache(),
		spin:       newSpinner(),
		load:       newLoadMeter(),
		view:       view{id: id, stopwatch: func() time.Duration { return time.Since(start) }},
		requests:   requests{bell: bell, ended: make(chan struct{}), stopped: e.stopped},
	}
	w.rx.view = &w.view
	w.tx = txQueues{view: &w.view, pool: w.buffers.pool, mirror: newMirrorer(&w.view)}
	w.l2 = l2Forwarder{w: w, view: &w.view, fib: newL2FIB(&w.view, start), storm: stormControl{view: &w.view}}
	w.vtep = vtep{w: w, fragments: newFragments(&w.view), ipID: uint16(id)}
	w.acl = newAccessControl(&w.view, e.start)
	w.slow = slowLink{
		w:        w,
		toSlow:   slow.NewRing[slow.Message](puntOrder),
		fromSlow: slow.NewRing[slow.Message](puntOrder),
	}
	if err := w.rx.poll.open(bell.Descriptor()); err != nil {
		return nil, fmt.Errorf("worker %d: %w", id, err)
	}
	w.refresh()
	return w, nil
}

func (w *worker) close() {
	_ = w.rx.poll.close()
	_ = w.bell.Close()
}

// run forwards until ctx ends, on a thread of its own, so that frames do not wait for the Go scheduler.
func (w *worker) run(ctx context.Context) error {
	runtime.LockOSThread() // never unlocked: the named thread ends with the worker
	nameThread(fmt.Sprintf("%s%d", WorkerThreads, w.id))
	defer close(w.requests.ended)
	stop := context.AfterFunc(ctx, func() {
		w.stopping.Store(true)
		w.bell.Ring()
	})
	defer stop()
	for idle := 0; !w.stopping.Load(); {
		switch {
		case w.round():
			idle = 0
		case len(w.rx.active) > 0:
			idle = 0 // busy polling
		case idle < w.spin.polls:
			idle++
		default:
			w.load.publish()
			began := time.Now()
			if err := w.sleep(); err != nil {
				return fmt.Errorf("worker %d: %w", w.id, err)
			}
			slept := time.Since(began)
			w.spin.slept(slept)
			w.load.slept(slept)
			w.l2.fib.secondClock.slept()
			w.acl.secondClock.slept()
			idle = 0
		}
	}
	return nil
}

// WorkerThreads is the prefix of the names of worker threads; the worker's number follows.
const WorkerThreads = "weft_wk_"

// nameThread names the calling thread, so that operators can find it and pin it to a CPU. The main thread keeps the
// name of the process.
func nameThread(name string) {
	if unix.Gettid() == unix.Getpid() {
		return
	}
	if text, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
	}
}

// round polls every active queue once. It reports whether there was work.
func (w *worker) round() bool {
	w.refresh()
	w.l2.fib.tick()
	w.serveRequests()
	busy := w.slow.receive()
	w.rx.startRound()
	for n := 0; n < len(w.rx.active); {
		q := w.rx.active[n]
		received, more := w.receive(q)
		busy = busy || received > 0
		if more || q.keepPolling(received) {
			n++
		} else {
			w.rx.deactivate(n)
		}
	}
	return busy
}

// refresh loads the current snapshot and port table.
func (w *worker) refresh() {
	w.snapshot = w.engine.live.Load()
	if now := w.engine.ports.Load(); now != w.portsNow {
		w.ports = *now
		w.portsNow = now
		w.rx.portsChanged()
	}
}

// sleep waits for frames or the bell. Interrupts of all inactive queues are enabled already.
func (w *worker) sleep() error {
	w.bell.Arm()
	defer w.bell.Disarm()
	pending := w.requests.pending() || !w.slow.fromSlow.Empty() || w.stopping.Load() ||
		w.engine.ports.Load() != w.portsNow
	if pending {
		return nil
	}
	events, err := w.rx.poll.wait()
	w.rx.wake(events)
	return err
}

// maxDrained limits how many frames drain receives from a queue: a tap queue holds 500 frames and most rings hold 1024,
// but the peer may keep sending.
const maxDrained = 1024

// drain forwards the frames that wait at the interface's port, such as the last ones of a pod, before control changes
// where its frames go. It returns when they are sent. Run must be running or have ended.
func (p *published) drain(index uint32) {
	a := p.ports.Load().at(index)
	if a == nil {
		return
	}
	for _, i := range a.rxQueues {
		i.owner.requests.post(func(w *worker) { w.drain(i) })
	}
}

func (w *worker) drain(i *rxQueue) {
	w.rx.turnStart = w.stopwatch()
	for drained := 0; drained < maxDrained && w.ports.at(i.port.index) == i.port; {
		n, more := w.receive(i)
		if drained += n; !more {
			return
		}
	}
}
