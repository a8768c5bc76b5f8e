package forward

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

// A worker serves its queues round robin. The sender decides the cost of a frame: flooding it in a large bridge domain
// takes up to a thousand times as long as dropping it. A turn is therefore limited by turnTime and not by frames: its
// burst follows the measured cost of the queue's last frames. All busy queues get the same share of the worker, and an
// idle queue waits for at most one turn of each.
const turnTime = 50 * time.Microsecond

const (
	// pollBudget is the number of empty polls of a shared memory queue, some hundred microseconds on an idle worker,
	// after which the worker enables the peer's interrupts. An interrupt costs a system call in the peer and a wake-up
	// here.
	pollBudget = 1 << 11
	// pollEvery is the number of rounds after which a busy worker checks epoll for queues that are not on the active
	// list.
	pollEvery = 16
)

// rxScheduler selects the receive queues of a worker that are polled.
type rxScheduler struct {
	*view
	poll      poller
	active    []*rxQueue
	rounds    uint
	busy      time.Duration // time spent on frames since the last epoll check
	turnStart time.Duration // start of the current turn, by the stopwatch
}

// startRound activates the queues that epoll reports, if no queue is active or the last check is long ago.
func (r *rxScheduler) startRound() {
	r.rounds++
	if len(r.active) == 0 || r.rounds%pollEvery == 0 || r.busy >= turnTime {
		r.busy = 0
		r.wake(r.poll.ready())
	}
	r.turnStart = r.stopwatch()
}

// portsChanged removes the queues of closed ports from the active list, and activates new queues of shared memory.
func (r *rxScheduler) portsChanged() {
	r.active = slices.DeleteFunc(r.active, func(q *rxQueue) bool { return r.ports.at(q.port.index) != q.port })
	for _, a := range r.ports.interfaces {
		if a == nil || a.shared == nil {
			continue
		}
		for _, q := range a.rxQueues {
			if &q.owner.rx == r && !q.polled {
				q.polled = true
				r.activate(q)
			}
		}
	}
}

// wake puts the queues that epoll reports on the active list.
func (r *rxScheduler) wake(events []unix.EpollEvent) {
	for _, e := range events {
		a := r.ports.at(uint32(e.Fd))
		n := int(e.Pad)
		if a == nil || n >= len(a.rxQueues) || a.failure.Load() != nil {
			continue
		}
		if q := a.rxQueues[n]; !q.active && &q.owner.rx == r {
			r.activate(q)
		}
	}
}

// activate puts a queue at the head of the active list, before busy queues, and disables its interrupts.
func (r *rxScheduler) activate(q *rxQueue) {
	q.Arm(false)
	q.active = true
	r.active = slices.Insert(r.active, 0, q)
}

// deactivate removes a queue from the active list. The poller reports when it has frames again.
func (r *rxScheduler) deactivate(n int) {
	r.active[n].active = false
	r.active = slices.Delete(r.active, n, n+1)
}

// endTurn ends a turn of n frames and starts the next one. A turn without frames counts as a part of the next one:
// polling shared memory takes less time than reading the clock. When inlined into receive it makes each routed packet
// 20 ns slower (BenchmarkMemif/L3), because of code layout alone.
//
//go:noinline
func (r *rxScheduler) endTurn(q *rxQueue, n int) {
	now := r.stopwatch()
	q.pace(n, now-r.turnStart)
	r.busy += now - r.turnStart
	r.turnStart = now
}

// rxQueue is a receive queue of a port. Only its owner uses the fields after owner.
type rxQueue struct {
	receiver
	port       *attachedPort
	owner      *worker
	active     bool // on the owner's active list
	polled     bool // was active before
	emptyPolls int  // polls since the last frame
	burst      int  // frames to receive in the next turn
	trace      tracer
}

// keepPolling reports whether a queue stays active after a receive of n frames, fewer than requested. A shared memory
// queue leaves the active list after pollBudget empty polls, unless a frame arrives while its interrupts are enabled.
func (q *rxQueue) keepPolling(n int) bool {
	switch {
	case q.port.shared == nil:
		return false
	case n > 0:
		q.emptyPolls = 0
		return true
	}
	if q.emptyPolls++; q.emptyPolls < pollBudget {
		return true
	}
	q.emptyPolls = 0
	if !q.Arm(true) {
		return false
	}
	q.Arm(false)
	return true
}

// pace sets the burst of the queue's next turn. The burst at most doubles, because the next frames may cost more.
func (q *rxQueue) pace(n int, took time.Duration) {
	fit := int(time.Duration(n) * turnTime / max(took, 1))
	q.burst = min(max(fit, 1), 2*q.burst, frame.VectorSize)
}

// An idle worker polls epoll this often before it sleeps. Each poll is a system call of half a microsecond.
const (
	minPolls = 16
	maxPolls = 256
	// shortSleep is a sleep that did not pay: a wake-up costs some microseconds on both sides.
	shortSleep = 100 * time.Microsecond
)

// spinner adapts the number of polls before a sleep to the duration of past sleeps: frames that follow each other
// closely are found by polling, and a worker with rare frames sleeps soon.
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
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)),
		uintptr(len(p.events)), 0, 0, 0)
	if errno != 0 {
		return nil
	}
	return p.events[:n]
}

// wait blocks until a descriptor is readable. The Go scheduler knows of this system call: a sleeping thread must not
// delay a garbage collection.
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
