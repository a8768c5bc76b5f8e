package memif

import "runtime/debug"

// FD is the ring's eventfd, which the peer writes when it published packets and the queue is armed. The peer holds it too:
// take it out of every epoll before Conn.Release, and do not read it where the peer is not trusted, because it can be made
// to block; a Waiter does both.
func (q *RxQueue) FD() int { return q.eventfd }

// Arm asks the peer to ring from now on. true says that packets wait already: do not sleep.
func (q *RxQueue) Arm() (waiting bool) {
	if q.memory.guarded {
		defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	}
	q.ring.maskInterrupts(false)
	return q.waiting() != 0
}

// Disarm asks the peer not to ring; queues begin so. One ring may be on its way.
func (q *RxQueue) Disarm() {
	if q.memory.guarded {
		defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	}
	q.ring.maskInterrupts(true)
}

// Waiting is how many slots hold packets that were not looked at.
func (q *RxQueue) Waiting() int {
	if q.memory.guarded {
		defer q.conn.recoverFault(debug.SetPanicOnFault(true))
	}
	return int(q.waiting())
}
