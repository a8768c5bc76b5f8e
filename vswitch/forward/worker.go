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
	// pollBudget is the number of empty polls of a shared memory queue, some hundred microseconds on an idle worker, after which
	// the worker enables the peer's interrupts. An interrupt costs a system call in the peer and a wake-up here.
	pollBudget = 1 << 11
	// pollEvery is the number of rounds after which a busy worker checks epoll for queues that are not on the active list.
	pollEvery = 16
	// puntOrder is the binary logarithm of the size of the rings to and from the slow path, in frames.
	puntOrder = 8
)

// worker forwards frames from its receive queues to any port, run to completion on its own thread. Other goroutines use only the
// atomic fields, the bell and the other ends of the rings.
type worker struct {
	engine   *Engine
	id       int
	bell     *slow.Bell
	poll     poller
	punts    *slow.Ring // to the slow path
	injects  *slow.Ring // from the slow path
	requests atomic.Pointer[request]
	stopping atomic.Bool
	ended    chan struct{} // closed when the worker has ended and serves no more requests
	drops    dropCounters

	snapshot     *snapshot
	ports        portTable
	portsNow     *portTable // the table that ports was copied from
	macs         *macTable
	secondClock  secondClock
	clock        func() uint32 // reads secondClock
	seconds      uint32        // of the clock, read once a round
	updates      []*updateRing // by sending worker; nil: there is one worker
	routes       routeCache
	untracedLine traceLine // replaces trace lines that would be overwritten
	bufferCache
	active    []*rxQueue      // rx queues to poll
	pendingTx []*attachedPort // ports with queued frames
	rounds    uint
	busy      time.Duration // time spent on frames since the last epoll check
	turnStart time.Duration // start of the current turn, by the stopwatch
	spin      spinner

	stormLimit int                  // copies per second; 0: no limit
	stopwatch  func() time.Duration // monotonic time

	ipID          uint16 // identification of the last outer IPv4 header
	decapsulating bool   // the current frame is the inner frame of a tunnel packet
	encapsulating bool   // the current frame is a tunnel packet

	// Of the frame that was decided last:
	unresolved netip.Addr // next hop that has no neighbour entry
	detail     traceDetail
}

func newWorker(e *Engine, id int) (*worker, error) {
	bell, err := slow.NewBell()
	if err != nil {
		return nil, err
	}
	w := &worker{
		engine: e, id: id, bell: bell, ended: make(chan struct{}),
		punts: slow.NewRing(puntOrder), injects: slow.NewRing(puntOrder),
		bufferCache: newBufferCache(),
		macs:        newMACTable(), secondClock: secondClock{start: time.Now()}, spin: newSpinner(),
	}
	w.clock = w.secondClock.read
	w.stopwatch = func() time.Duration { return time.Since(w.secondClock.start) }
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

// run forwards until ctx ends, on a thread of its own, so that frames do not wait for the Go scheduler.
func (w *worker) run(ctx context.Context) error {
	runtime.LockOSThread() // never unlocked: the named thread ends with the worker
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
			idle = 0 // busy polling
		case idle < w.spin.polls:
			idle++
		default:
			began := time.Now()
			if err := w.sleep(); err != nil {
				return fmt.Errorf("worker %d: %w", w.id, err)
			}
			w.spin.slept(time.Since(began))
			w.secondClock.slept()
			idle = 0
		}
	}
	return nil
}

// WorkerThreads is the prefix of the names of worker threads; the worker's number follows.
const WorkerThreads = "weft_wk_"

// nameThread names the calling thread, so that operators can find it and pin it to a CPU. The main thread keeps the name of the
// process.
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
	w.tick()
	w.serveRequests()
	busy := w.takeInjected()
	w.rounds++
	if len(w.active) == 0 || w.rounds%pollEvery == 0 || w.busy >= turnTime {
		w.busy = 0
		w.wake(w.poll.ready())
	}
	w.turnStart = w.stopwatch()
	for i := 0; i < len(w.active); {
		n, more := w.receive(w.active[i])
		busy = busy || n > 0
		if more || w.active[i].keepPolling(n) {
			i++
			continue
		}
		// The poller reports when this queue has frames again.
		w.active[i].active = false
		w.active = slices.Delete(w.active, i, i+1)
	}
	return busy
}

// keepPolling reports whether a queue stays active after a receive of n frames, fewer than requested. A shared memory queue
// leaves the active list after pollBudget empty polls, unless a frame arrives while its interrupts are enabled.
func (i *rxQueue) keepPolling(n int) bool {
	switch {
	case i.port.shared == nil:
		return false
	case n > 0:
		i.emptyPolls = 0
		return true
	}
	if i.emptyPolls++; i.emptyPolls < pollBudget {
		return true
	}
	i.emptyPolls = 0
	if !i.Arm(true) {
		return false
	}
	i.Arm(false)
	return true
}

// refresh loads the current snapshot and port table. Queues of closed ports leave the active list.
func (w *worker) refresh() {
	w.snapshot = w.engine.live.Load()
	now := w.engine.ports.Load()
	if now == w.portsNow {
		return
	}
	w.ports, w.portsNow = *now, now
	w.active = slices.DeleteFunc(w.active, func(i *rxQueue) bool { return w.ports.at(i.port.index) != i.port })
	for _, a := range w.ports.interfaces {
		if a != nil && a.shared != nil {
			w.pollNew(a.rxQueues)
		}
	}
}

// pollNew activates new queues of shared memory.
func (w *worker) pollNew(inlets []*rxQueue) {
	for _, i := range inlets {
		if i.owner == w && !i.polled {
			i.polled = true
			w.activate(i)
		}
	}
}

// wake puts the queues that epoll reports on the active list.
func (w *worker) wake(events []unix.EpollEvent) {
	for _, e := range events {
		a, n := w.ports.at(uint32(e.Fd)), int(e.Pad)
		if a == nil || n >= len(a.rxQueues) || a.failure.Load() != nil {
			continue
		}
		if i := a.rxQueues[n]; !i.active && i.owner == w {
			w.activate(i)
		}
	}
}

// activate puts a queue at the head of the active list, before busy queues, and disables its interrupts.
func (w *worker) activate(i *rxQueue) {
	i.Arm(false)
	i.active = true
	w.active = slices.Insert(w.active, 0, i)
}

// sleep waits for frames or the bell. Interrupts of all inactive queues are enabled already.
func (w *worker) sleep() error {
	w.bell.Arm()
	defer w.bell.Disarm()
	pending := w.requests.Load() != nil || !w.injects.Empty() || w.stopping.Load() || w.engine.ports.Load() != w.portsNow
	if pending {
		return nil
	}
	events, err := w.poll.wait()
	w.wake(events)
	return err
}

// A worker serves its queues round robin. The sender decides what a frame costs: flooding it in a large bridge domain takes up to
// a thousand times as long as dropping it. A turn is therefore limited by time and not by frames: its burst follows the measured
// cost of the queue's last frames. All busy queues get the same share of the worker, and an idle queue waits for at most one turn
// of each.
const (
	// turnTime is the longest intended duration of a turn.
	turnTime = 50 * time.Microsecond
	// injectedBurst limits the frames from the slow path in a round.
	injectedBurst = 64
)

// endTurn ends a turn of n frames and starts the next one. A turn without frames counts as a part of the next one: polling shared
// memory takes less time than reading the clock. When inlined into receive it makes each routed packet 20 ns slower
// (BenchmarkMemif/L3), because of code layout alone.
//
//go:noinline
func (w *worker) endTurn(i *rxQueue, n int) {
	now := w.stopwatch()
	i.pace(n, now-w.turnStart)
	w.busy += now - w.turnStart
	w.turnStart = now
}

// pace sets the burst of the queue's next turn. The burst at most doubles, because the next frames may cost more.
func (i *rxQueue) pace(n int, took time.Duration) {
	fit := int(time.Duration(n) * turnTime / max(took, 1))
	i.burst = min(max(fit, 1), 2*i.burst, frame.VectorSize)
}

// An idle worker polls epoll this often before it sleeps. Each poll is a system call of half a microsecond.
const (
	minPolls = 16
	maxPolls = 256
	// shortSleep is a sleep that did not pay: a wake-up costs some microseconds on both sides.
	shortSleep = 100 * time.Microsecond
)

// spinner adapts the number of polls before a sleep to the duration of past sleeps: frames that follow each other closely are
// found by polling, and a worker with rare frames sleeps soon.
type spinner struct{ polls int }

func newSpinner() spinner { return spinner{polls: minPolls} }

// slept adapts to the duration of a sleep.
func (s *spinner) slept(d time.Duration) {
	if d < shortSleep {
		s.polls = min(2*s.polls, maxPolls)
		return
	}
	s.polls = max(s.polls/2, minPolls)
}

// poolSize is the number of a worker's buffers: one vector to receive into and one in transmit queues.
const poolSize = 2 * frame.VectorSize

// bufferCache holds a worker's empty buffers.
type bufferCache struct {
	pool  *frame.Pool
	empty []*frame.Buffer // for the next vector, most recently used first
}

func newBufferCache() bufferCache {
	return bufferCache{pool: frame.NewPool(frame.LargeSize, poolSize), empty: make([]*frame.Buffer, 0, frame.VectorSize)}
}

// forVector returns buffers for n frames, or fewer if the pool is short.
func (s *bufferCache) forVector(n int) []*frame.Buffer {
	if len(s.empty) < n {
		s.refill(0)
	}
	return s.empty[:min(n, len(s.empty))]
}

// refill replaces the first used buffers by those released last, which are still in the CPU cache. The pool may be short.
func (s *bufferCache) refill(used int) {
	got := s.pool.Take(s.empty[:used])
	if got < used {
		s.empty = s.empty[:got+copy(s.empty[got:], s.empty[used:])]
	}
	ready := len(s.empty)
	s.empty = s.empty[:frame.VectorSize]
	s.empty = s.empty[:ready+s.pool.Take(s.empty[ready:])]
}

// vectorTally counts a vector in registers; the shared counters are written once per vector.
type vectorTally struct {
	bytes, drops, punts, ip4, ip6 uint64
}

func (t *vectorTally) add(b *frame.Buffer, d verdict) {
	if d.drop != noDrop {
		t.drops++
	}
	if d.punt != 0 {
		t.punts++
	}
	t.count(b.EthernetType())
}

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

// maxDrained limits how many frames drain receives from a queue: a tap queue holds 500 frames and most rings hold 1024, but the
// peer may keep sending.
const maxDrained = 1024

// drain forwards the frames that wait at the interface's port, such as the last ones of a pod, before control changes where its
// frames go. It returns when they are sent. Run must be running or have ended.
func (e *Engine) drain(index uint32) {
	a := e.ports.Load().at(index)
	if a == nil {
		return
	}
	for _, i := range a.rxQueues {
		i.owner.post(func(w *worker) { w.drain(i) })
	}
}

func (w *worker) drain(i *rxQueue) {
	w.turnStart = w.stopwatch()
	for drained := 0; drained < maxDrained && w.ports.at(i.port.index) == i.port; {
		n, more := w.receive(i)
		if drained += n; !more {
			return
		}
	}
}

// bellToken stands for the worker's bell in epoll data, in place of a port's index.
const bellToken = NoInterface

// poller polls descriptors with epoll, level triggered: data that was not read is reported again.
type poller struct {
	fd     int
	events [64]unix.EpollEvent
}

func (p *poller) open(bell int) error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("create epoll: %w", err)
	}
	p.fd = fd
	return p.add(bell, bellToken, 0)
}

// add watches fd, which belongs to queue n of a port. Any goroutine may call it.
func (p *poller) add(fd int, port uint32, n int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(port), Pad: int32(n)}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch port: %w", err)
	}
	return nil
}

// remove stops watching fd, if it is watched. Any goroutine may call it.
func (p *poller) remove(fd int) {
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), unix.EPOLL_CTL_DEL, uintptr(fd), 0, 0, 0)
}

// ready returns readable descriptors without waiting.
func (p *poller) ready() []unix.EpollEvent {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)), 0, 0, 0)
	if errno != 0 {
		return nil
	}
	return p.events[:n]
}

// wait blocks until a descriptor is readable. The Go scheduler knows of this system call: a sleeping thread must not delay a
// garbage collection.
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
