package forward

import (
	"testing"
	"time"
)

func TestAWorkerLooksLongerWhereItsSleepsAreShort(t *testing.T) {
	s := newSpinner()
	for range 20 {
		s.slept(shortSleep / 2)
	}
	if s.polls != maxPolls {
		t.Errorf("%d looks after short sleeps", s.polls)
	}
	s.slept(time.Second)
	if s.polls >= maxPolls {
		t.Errorf("%d looks after a long sleep", s.polls)
	}
	for range 20 {
		s.slept(2 * shortSleep)
	}
	if s.polls != minPolls {
		t.Errorf("%d looks after long sleeps", s.polls)
	}
}
