package forward

import "sync/atomic"

// Counters are an interface's totals since it was made.
type Counters struct {
	RxPackets, RxBytes uint64 // taken from the port, dropped ones included
	TxPackets, TxBytes uint64 // given to the port
	RxIP4, RxIP6       uint64 // of RxPackets
	Drops              uint64 // received here and dropped, for whatever reason
	Punts              uint64 // received here and handed to the slow path
	TxErrors           uint64 // refused by the port
}

// counters are one worker's share: it alone writes them, control sums.
type counters struct {
	rxPackets, rxBytes atomic.Uint64
	txPackets, txBytes atomic.Uint64
	rxIP4, rxIP6       atomic.Uint64
	drops, punts       atomic.Uint64
	txErrors           atomic.Uint64
	_                  [56]byte // keeps two workers' counters off one cache line
}

func newCounterSet(workers int) []*counters {
	set := make([]*counters, workers)
	for i := range set {
		set[i] = new(counters)
	}
	return set
}

// Counters sums what all workers counted on a published interface; zero for an unknown one.
func (e *Engine) Counters(index uint32) Counters {
	var sum Counters
	i := e.live.Load().iface(index)
	if i == nil {
		return sum
	}
	for _, c := range i.counters {
		sum.RxPackets += c.rxPackets.Load()
		sum.RxBytes += c.rxBytes.Load()
		sum.TxPackets += c.txPackets.Load()
		sum.TxBytes += c.txBytes.Load()
		sum.RxIP4 += c.rxIP4.Load()
		sum.RxIP6 += c.rxIP6.Load()
		sum.Drops += c.drops.Load()
		sum.Punts += c.punts.Load()
		sum.TxErrors += c.txErrors.Load()
	}
	return sum
}
