package linux

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"os/exec"
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
	inode, device, err := InspectNamespace(l.path)
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

// visited tells the second process, in its environment, which namespace to visit.
const visited = "WEFT_TEST_VISITED"

// TestANamespaceIsNotTheHostsWhoeverVisitsIt holds so many threads in it that the process's first one is among them. It does so
// in a process of its own: where a goroutine has ended that was locked to the first thread, Go's runtime uses that no more.
func TestANamespaceIsNotTheHostsWhoeverVisitsIt(t *testing.T) {
	path := os.Getenv(visited)
	if path == "" {
		alone := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		alone.Env = append(os.Environ(), visited+"="+netnstest.New(t))
		out, err := alone.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	leave, first := make(chan struct{}), make(chan bool)
	var visits sync.WaitGroup
	defer visits.Wait()
	defer close(leave)
	const most = 200
	for n, among := 0, false; !among; n++ {
		if n == most {
			t.Fatalf("the process's first thread is not among %d that visit", most)
		}
		visits.Go(func() {
			must(t, inNamespace(path, netnsID{}, func(*handle) error {
				first <- unix.Gettid() == unix.Getpid()
				<-leave
				return nil
			}))
		})
		among = <-first
	}
	if _, _, err := InspectNamespace(path); err != nil {
		t.Error(err)
	}
}
