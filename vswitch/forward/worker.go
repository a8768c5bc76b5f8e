package forward

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
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
	ended    chan struct{} // closed when the worker has ended and reads no more mail
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

// begin polls the shared memory of new inlets for the first time.
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

// A worker that has nothing to do looks again that often, a system call each time, before it sleeps: half a microsecond
// a look.
const (
	fewestLooks = 16
	mostLooks   = 256
	// shortSleep is a sleep that was hardly worth it: a wake-up costs the sleeper and the waker some microseconds each.
	shortSleep = 100 * time.Microsecond
)

// spinner adapts how long a worker looks before it sleeps to how long it has slept: where frames come one soon after the
// other it finds the next by looking; where they are rare it does not look long.
type spinner struct{ looks int }

func newSpinner() spinner { return spinner{looks: fewestLooks} }

// slept takes in how long the last sleep was.
func (s *spinner) slept(d time.Duration) {
	if d < shortSleep {
		s.looks = min(2*s.looks, mostLooks)
		return
	}
	s.looks = max(s.looks/2, fewestLooks)
}

// poolSize is the number of a worker's buffers: a vector's empty ones, and as many on their way out.
const poolSize = 2 * frame.VectorSize

// stock holds a worker's empty buffers.
type stock struct {
	pool  *frame.Pool
	empty []*frame.Buffer // for the next vector, those first that were used last
}

func newStock() stock {
	return stock{pool: frame.NewPool(frame.LargeSize, poolSize), empty: make([]*frame.Buffer, 0, frame.VectorSize)}
}

// forVector returns buffers to receive n frames into, or fewer if the pool is short of them.
func (s *stock) forVector(n int) []*frame.Buffer {
	if len(s.empty) < n {
		s.refill(0)
	}
	return s.empty[:min(n, len(s.empty))]
}

// refill puts the buffers that were released last in the place of the first used ones, so that the next frames come into
// memory that the processor's cache still has. The pool may be short of some.
func (s *stock) refill(used int) {
	got := s.pool.Take(s.empty[:used])
	if got < used {
		s.empty = s.empty[:got+copy(s.empty[got:], s.empty[used:])]
	}
	ready := len(s.empty)
	s.empty = s.empty[:frame.VectorSize]
	s.empty = s.empty[:ready+s.pool.Take(s.empty[ready:])]
}

// vectorTally counts one vector in registers; the shared counters are touched once a vector.
type vectorTally struct {
	bytes, drops, punts, ip4, ip6 uint64
}

func (t *vectorTally) add(b *frame.Buffer, d verdict) {
	if d.drop != kept {
		t.drops++
	}
	if d.punt != 0 {
		t.punts++
	}
	t.count(b.EthernetType())
}

// count takes in what a frame carries.
func (t *vectorTally) count(ethernetType uint16) {
	switch ethernetType {
	case frame.TypeIPv4:
		t.ip4++
	case frame.TypeIPv6:
		t.ip6++
	}
}

func (t *vectorTally) publish(c *counters, packets int) {
	c.rxPackets.Add(uint64(packets))
	c.rxBytes.Add(t.bytes)
	c.rxIP4.Add(t.ip4)
	c.rxIP6.Add(t.ip6)
	if t.drops > 0 {
		c.drops.Add(t.drops)
	}
	if t.punts > 0 {
		c.punts.Add(t.punts)
	}
}

// mostDrained bounds how many frames are drained, as a port may have more to come all the time: a tap's queues are of 500 frames
// each, most rings are of 1024.
const mostDrained = 1024

// drain takes in what waits at the interface's port, such as a pod's last words, before control takes the interface away
// from where its frames go. It returns when they are sent on, which needs Run to run or to have ended.
func (e *Engine) drain(index uint32) {
	a := e.ports.Load().at(index)
	if a == nil {
		return
	}
	for _, i := range a.inlets {
		i.owner.post(func(w *worker) { w.drain(i) })
	}
}

func (w *worker) drain(i *inlet) {
	w.turnAt = w.stopwatch()
	for drained := 0; drained < mostDrained && w.ports.at(i.of.index) == i.of; {
		n, more := w.receive(i)
		if drained += n; !more {
			return
		}
	}
}

// bellToken stands for the worker's bell among the ports' indexes.
const bellToken = NoInterface

// poller knows which descriptors are readable: epoll, level triggered, so that what is not read is told again.
type poller struct {
	fd     int
	events [64]unix.EpollEvent
}

func (p *poller) open(bell int) error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make epoll: %w", err)
	}
	p.fd = fd
	return p.add(bell, bellToken, 0)
}

// add announces fd, queue n of a port, with both numbers. Any goroutine may call it.
func (p *poller) add(fd int, port uint32, n int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(port), Pad: int32(n)}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch port: %w", err)
	}
	return nil
}

// remove ends the announcement; for a descriptor that is not announced it does nothing. Any goroutine may call it.
func (p *poller) remove(fd int) {
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), unix.EPOLL_CTL_DEL, uintptr(fd), 0, 0, 0)
}

// ready looks without waiting.
func (p *poller) ready() []unix.EpollEvent {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)), 0, 0, 0)
	if errno != 0 {
		return nil
	}
	return p.events[:n]
}

// wait sleeps until something is readable. It is a system call that the Go scheduler knows of: a thread that sleeps must
// not hold up a garbage collection.
func (p *poller) wait() ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(p.fd, p.events[:], -1)
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wait for ports: %w", err)
	}
	return p.events[:n], nil
}

func (p *poller) close() error { return unix.Close(p.fd) }
