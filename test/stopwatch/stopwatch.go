// Package stopwatch measures how long something takes, where the machine may have much else to do.
package stopwatch

import (
	"sync"
	"time"
)

// tick is how finely is measured.
const tick = 5 * time.Millisecond

// Time runs f and says how long that took, of the time in which the machine let this process run: it counts ticks, and those that
// are held up come together and count as one. What waits for a time of its own is measured as by any other clock.
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
