package memif

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// notifyBudget bounds the time that the notifications of an interface take from the threads that send packets. The
// client shares the eventfd, and can watch it by any number of duplicates in any number of epolls: the kernel tells
// each of them in the thread that notifies, with interrupts disabled. 100,000 take some 20 ms, in which the thread
// forwards no packet of any pod.
//
// A connection that takes more is ended, and the interface refuses clients until the time is made up for.
type notifyBudget struct {
	// suspectedUntil, after processStart, is the end of a suspicion: a notification took long. The thread may also have
	// waited for a processor, so those that follow are measured by the time of the thread. The client can choose which
	// of them are slow, so fast ones do not end the suspicion: it lasts as long as it takes to make up for the first
	// slow one, which is not measured.
	suspectedUntil atomic.Int64

	mu    sync.Mutex
	debt  time.Duration
	since time.Time // debt is valid for this time
	slow  int       // slow notifications since there was no debt
}

// processStart is the zero of times that are stored as one word.
var processStart = time.Now()

const (
	// slowNotification is the time that a notification may take. A usual one takes a microsecond.
	slowNotification = 200 * time.Microsecond
	// notifyShare is the part of the time that slow notifications of an interface may take: one hundredth.
	notifyShare = 100
	// notifyBurst is the time that they may take at once.
	notifyBurst = 5 * time.Millisecond
	// fewestSlow is the number of slow notifications that are evidence against the client. In a virtual machine the
	// time of a thread can contain the time of another machine, so that one or two notifications seem to take
	// milliseconds.
	fewestSlow = 4
)

// run notifies by f and reports whether that is too much.
func (b *notifyBudget) run(f func()) (exceeded bool) {
	start := time.Since(processStart)
	if start < time.Duration(b.suspectedUntil.Load()) {
		return b.measure(f)
	}
	f()
	b.suspect(time.Since(processStart) - start)
	return false
}

// suspect begins or extends a suspicion if a notification was slow. A less slow one does not shorten it.
func (b *notifyBudget) suspect(took time.Duration) {
	if took <= slowNotification {
		return
	}
	end := int64(time.Since(processStart) + took*notifyShare)
	for {
		known := b.suspectedUntil.Load()
		if end <= known || b.suspectedUntil.CompareAndSwap(known, end) {
			return
		}
	}
}

// measure is run by the time of the thread.
func (b *notifyBudget) measure(f func()) (exceeded bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := timeOfThread()
	f()
	took := timeOfThread() - start
	b.suspect(took)
	return took > slowNotification && b.spend(took, time.Now())
}

// timeOfThread returns the processor time of the thread.
func timeOfThread() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// spend adds the time of a notification and reports whether that is too much.
func (b *notifyBudget) spend(took time.Duration, now time.Time) (exceeded bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.debt = b.debtLocked(now)
	if b.debt == 0 {
		b.slow = 0
	}
	b.debt += took
	b.since = now
	b.slow++
	return b.isExceededLocked(now)
}

// isExceeded reports whether the interface refuses clients.
func (b *notifyBudget) isExceeded(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.isExceededLocked(now)
}

func (b *notifyBudget) isExceededLocked(now time.Time) bool {
	return b.slow >= fewestSlow && b.debtLocked(now) > notifyBurst
}

func (b *notifyBudget) debtLocked(now time.Time) time.Duration {
	return max(0, b.debt-now.Sub(b.since)/notifyShare)
}
