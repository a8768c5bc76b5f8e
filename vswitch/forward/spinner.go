package forward

import "time"

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
