// Package stopwatch measures durations on a busy machine.
package stopwatch

import (
	"sync"
	"time"
)

// tick is the resolution.
const tick = 5 * time.Millisecond

// Time runs f and returns its duration without times in which the machine did not run this process: it counts ticks,
// and ticks that were delayed together count as one.
func Time(f func()) time.Duration {
	ticks := 0
	over := make(chan struct{})
	var counting sync.WaitGroup
	counting.Go(func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				ticks++
			case <-over:
				return
			}
		}
	})
	func() {
		defer counting.Wait()
		defer close(over)
		f()
	}()
	return time.Duration(ticks) * tick
}
