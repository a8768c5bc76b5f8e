package linux

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestInterruptedDumpIsRepeated(t *testing.T) {
	lasting := errors.New("out of memory")
	tests := []struct {
		name   string
		errs   []error // of each attempt; the last one repeats
		tries  int
		result error
	}{
		{"no error", []error{nil}, 1, nil},
		{"interrupted by a change", []error{netlink.ErrDumpInterrupted, netlink.ErrDumpInterrupted, nil}, 3, nil},
		{"interrupted by a signal", []error{fmt.Errorf("receive: %w", unix.EINTR), nil}, 2, nil},
		{"another error is not repeated", []error{lasting}, 1, lasting},
		{"interrupted each time", []error{netlink.ErrDumpInterrupted}, maxTries, netlink.ErrDumpInterrupted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tries := 0
			got, err := retryDump(func() ([]int, error) {
				err := tt.errs[min(tries, len(tt.errs)-1)]
				tries++
				return []int{tries}, err
			})
			if tries != tt.tries || !errors.Is(err, tt.result) {
				t.Errorf("%d tries and %v, want %d and %v", tries, err, tt.tries, tt.result)
			}
			if err == nil && (len(got) != 1 || got[0] != tries) ||
				errors.Is(err, netlink.ErrDumpInterrupted) && got != nil {
				t.Errorf("got %v, want the last dump", got)
			}
		})
	}
}

func TestInNamespaceLeavesNoDescriptorAndReturns(t *testing.T) {
	netnstest.RequireTap(t)
	path := netnstest.New(t)
	netnstest.Do(t, path, func() { addTap(t, "eth0") })
	links := func() []net.Interface {
		list, err := net.Interfaces()
		must(t, err)
		return list
	}
	outside := len(links())
	before := descriptors(t)
	for range 50 {
		err := inNamespace(path, netnsID{}, func(h *handle) error {
			_, err := h.link("eth0")
			return err
		})
		must(t, err)
		if got := len(links()); got != outside {
			t.Fatalf("the thread sees %d links, want %d", got, outside)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func TestInNamespaceReturnsAPanicAsError(t *testing.T) {
	path := netnstest.New(t)
	if err := inNamespace(path, netnsID{}, func(*handle) error { panic("test") }); err == nil {
		t.Error("no error")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}
