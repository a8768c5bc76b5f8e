package linux

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/wire"
)

func TestALinkTellsWhatItWasGiven(t *testing.T) {
	l := newLab(t)
	four, six := netip.MustParsePrefix("10.1.0.5/32"), netip.MustParsePrefix("2001:db8::5/128")
	l.mustCommit(append(l.ground(), l.address(four.String()), l.address(six.String()))...)
	s, err := InspectLink(l.path, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(s.Addresses, netip.Prefix.Compare)
	if !slices.Equal(s.Addresses, []netip.Prefix{four, six}) {
		t.Errorf("addresses %v, want %s and %s, and none that the kernel made", s.Addresses, four, six)
	}
	inode, device, err := Inspect(l.path)
	must(t, err)
	if s.Inode != inode || s.Device != device || s.Alias != alias || !s.Tap || s.MAC != mac1 || s.MTU != 1400 {
		t.Errorf("link %+v", s)
	}
}

func TestALinkThatIsNotThereIsTold(t *testing.T) {
	path := netnstest.New(t)
	if s, err := InspectLink(path, "eth0"); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("of no link: %+v, error %v", s, err)
	}
	netnstest.Remove(t, path)
	if s, err := InspectLink(path, "eth0"); !errors.Is(err, ErrGone) {
		t.Errorf("of no namespace: %+v, error %v", s, err)
	}
	if s, err := InspectLink(threadNamespace, "lo"); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("of the host: %+v, error %v", s, err)
	}
}

func TestALinkOfSomebodyElseTellsSo(t *testing.T) {
	path := netnstest.New(t)
	netnstest.Do(t, path, func() { addDummy(t, "eth0") })
	s, err := InspectLink(path, "eth0")
	if err != nil || s.Tap || s.Alias != "" || s.MAC == (wire.MAC{}) {
		t.Errorf("link %+v, error %v", s, err)
	}
}

// TestANamespaceIsNotTheHostsWhoeverVisitsIt holds so many threads in it that the process's first one is among them, unless a
// goroutine that was locked to it has ended: Go's runtime uses it no more then.
func TestANamespaceIsNotTheHostsWhoeverVisitsIt(t *testing.T) {
	l := newLab(t)
	leave, first := make(chan struct{}), make(chan bool)
	var visits sync.WaitGroup
	defer visits.Wait()
	defer close(leave)
	const most = 100
	for among, n := false, 0; !among; n++ {
		if n == most {
			t.Skipf("the process's first thread is not among %d that visit", most)
		}
		visits.Go(func() {
			must(t, visit(l.path, Place{}, func(*handle) error {
				first <- unix.Gettid() == unix.Getpid()
				<-leave
				return nil
			}))
		})
		among = <-first
	}
	if _, _, err := Inspect(l.path); err != nil {
		t.Error(err)
	}
}
