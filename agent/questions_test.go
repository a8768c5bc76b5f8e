package agent

import (
	"testing"
	"time"
)

func TestZeroDurationIsNotReplacedByADefault(t *testing.T) {
	if got := orNone(0); got >= 0 {
		t.Errorf("0s became %s, a default", got)
	}
	if got := orNone(time.Second); got != time.Second {
		t.Errorf("1s became %s", got)
	}
}
