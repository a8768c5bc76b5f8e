package forward

import "sync/atomic"

// reason says why a frame was dropped; the zero value is no drop.
type reason uint8

const (
	kept reason = iota
	dropInterfaceDown
	dropShortEthernet
	dropDestinationMAC
	dropEthernetType
	reasons
)

// reasonNames are worded as VPP's error counters are, where VPP has one.
var reasonNames = [reasons]string{
	dropInterfaceDown:  "interface is down",
	dropShortEthernet:  "ethernet frame too short",
	dropDestinationMAC: "l3 mac mismatch",
	dropEthernetType:   "unknown ethernet type",
}

// dropCounters are one worker's.
type dropCounters [reasons]atomic.Uint64

// Drops returns how many frames were dropped since the start, by reason; reasons that never occurred are left out.
func (e *Engine) Drops() map[string]uint64 {
	sum := map[string]uint64{}
	for _, w := range e.workers {
		for r := range w.drops {
			if n := w.drops[r].Load(); n > 0 {
				sum[reasonNames[r]] += n
			}
		}
	}
	return sum
}
