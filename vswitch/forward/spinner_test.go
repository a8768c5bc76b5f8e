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
	if s.looks != mostLooks {
		t.Errorf("%d looks after short sleeps", s.looks)
	}
	s.slept(time.Second)
	if s.looks >= mostLooks {
		t.Errorf("%d looks after a long sleep", s.looks)
	}
	for range 20 {
		s.slept(2 * shortSleep)
	}
	if s.looks != fewestLooks {
		t.Errorf("%d looks after long sleeps", s.looks)
	}
}
