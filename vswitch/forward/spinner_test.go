package forward

import (
	"testing"
	"time"
)

func TestWorkerPollsLongerAfterShortSleeps(t *testing.T) {
	s := newSpinner()
	for range 20 {
		s.slept(shortSleep / 2)
	}
	if s.polls != maxPolls {
		t.Errorf("%d polls after short sleeps", s.polls)
	}
	s.slept(time.Second)
	if s.polls >= maxPolls {
		t.Errorf("%d polls after a long sleep", s.polls)
	}
	for range 20 {
		s.slept(2 * shortSleep)
	}
	if s.polls != minPolls {
		t.Errorf("%d polls after long sleeps", s.polls)
	}
}
