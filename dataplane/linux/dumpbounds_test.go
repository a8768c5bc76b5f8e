package linux

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A dump ends at a number of objects, and at a time only if it is long: a busy machine delays the dumps of every pod.
func TestTheTimeOfADumpCountsIfItIsLong(t *testing.T) {
	object := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.RTM_NEWROUTE}}
	for name, c := range map[string]struct {
		began time.Time
		want  int // objects that are read
	}{
		"at once": {time.Now().Add(time.Hour), maxDumped},
		"late":    {time.Now().Add(-time.Hour), untimed},
	} {
		read := 0
		d := dump{began: c.began, each: func([]byte) error {
			read++
			return nil
		}}
		var err error
		for err == nil {
			err = d.handle(object)
		}
		if read != c.want || !errors.Is(err, errOverfull) {
			t.Errorf("%s: %d objects are read, want %d: %v", name, read, c.want, err)
		}
	}
}
