package port

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/frame"
)

// openUDP binds to an address of lo.
func openUDP(t *testing.T, address string) *UDP {
	t.Helper()
	u, err := OpenUDP(netip.AddrPortFrom(netip.MustParseAddr(address), 4789))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Close() })
	return u
}

// envelopes are frames of these lengths on their way, numbered in their first byte.
func envelopes(p *frame.Pool, from, to netip.AddrPort, lengths ...int) []*frame.Buffer {
	e := frame.NewEnvelope(from.Addr(), to, 7)
	var list []*frame.Buffer
	for i, n := range lengths {
		b := p.One()
		b.SetLen(n)
		b.Bytes()[0] = byte(i)
		e.Push(b, 50000, 0)
		list = append(list, b)
	}
	return list
}

// awaitInput waits until something is there to be received, at most for some seconds.
func awaitInput(t *testing.T, of []unix.PollFd) {
	t.Helper()
	for {
		if _, err := unix.Poll(of, 10_000); !errors.Is(err, unix.EINTR) {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// arrived receives until so many datagrams are there, and returns their lengths and first bytes.
func arrived(t *testing.T, u *UDP, p *frame.Pool, count int) (list []string) {
	t.Helper()
	v := make([]*frame.Buffer, 8)
	p.Take(v)
	for deadline := time.Now().Add(time.Minute); len(list) < count && time.Now().Before(deadline); {
		awaitInput(t, []unix.PollFd{{Fd: int32(u.Descriptor()), Events: unix.POLLIN}})
		n, err := u.Receive(v)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range v[:n] {
			from, size := u.Sender(i)
			for _, piece := range pieces(b.Bytes(), size) {
				list = append(list, fmt.Sprint(from, " ", len(piece), " ", piece[min(8, len(piece)-1)]))
			}
		}
	}
	return list
}

// pieces are the datagrams of a bundle; 0: it is a single one.
func pieces(raw []byte, size int) [][]byte {
	if size == 0 {
		return [][]byte{raw}
	}
	return slices.Collect(slices.Chunk(raw, size))
}

func TestDatagramsArriveInOrderInWhateverBundles(t *testing.T) {
	netnstest.Require(t)
	for from, to := range map[string]string{"127.0.0.1": "127.0.0.2", "::1": "::1"} {
		a := openUDP(t, from)
		b := a
		if from != to {
			b = openUDP(t, to)
		}
		for rule, lengths := range map[string][]int{
			"one":                        {60},
			"a bundle":                   {1000, 1000, 1000, 500},
			"a shorter one ends it":      {1000, 500, 1000, 1000, 1400},
			"more than a bundle":         repeated(100, 600),
			"more bytes than a packet":   repeated(70, 1400),
			"more than the link's MTU":   {40000, 40000},
			"as long as they can be":     {60000},
			"more bundles than one call": alternating(150),
		} {
			t.Run(from+" "+rule, func(t *testing.T) {
				p := frame.NewPool(frame.LargeSize, frame.VectorSize+16)
				v := envelopes(p, a.Local(), b.Local(), lengths...)
				if n, err := a.Transmit(v); n != len(lengths) || err != nil {
					t.Fatalf("%d of %d sent, %v", n, len(lengths), err)
				}
				got := arrived(t, b, p, len(lengths))
				if len(got) != len(lengths) {
					t.Fatalf("%d of %d arrived", len(got), len(lengths))
				}
				for i, n := range lengths {
					if want := fmt.Sprint(from, " ", n+8, " ", byte(i)); got[i] != want {
						t.Errorf("datagram %d: %s, wanted %s", i, got[i], want)
					}
				}
			})
		}
	}
}

func repeated(count, length int) []int {
	list := make([]int, count)
	for i := range list {
		list[i] = length
	}
	return list
}

func alternating(count int) []int {
	list := repeated(count, 100)
	for i := range list {
		list[i] += i % 2 * 50
	}
	return list
}

func TestAnAddressThatIsNotTheMachinesIsRefused(t *testing.T) {
	netnstest.Require(t)
	if _, err := OpenUDP(netip.MustParseAddrPort("192.0.2.55:4789")); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("%v", err)
	}
	u := openUDP(t, "127.0.0.3")
	if _, err := OpenUDP(u.Local()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second socket: %v", err)
	}
}

func TestADestinationThatCannotBeReachedCostsItselfAlone(t *testing.T) {
	netnstest.Require(t)
	a, b := openUDP(t, "127.0.0.1"), openUDP(t, "127.0.0.2")
	p := frame.NewPool(frame.LargeSize, 16)
	v := envelopes(p, a.Local(), netip.MustParseAddrPort("240.0.0.1:4789"), 100, 100)
	v = append(v, envelopes(p, a.Local(), b.Local(), 100)...)
	if n, err := a.Transmit(v); n != 1 || err != nil || v[0].Len() != 0 || v[1].Len() != 0 {
		t.Fatalf("%d sent, %v", n, err)
	}
	if got := arrived(t, b, p, 1); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestSocketsAllocateNothing(t *testing.T) {
	netnstest.Require(t)
	a := openUDP(t, "127.0.0.1")
	p := frame.NewPool(frame.LargeSize, 128)
	in := make([]*frame.Buffer, 64)
	p.Take(in)
	v := envelopes(p, a.Local(), a.Local(), repeated(40, 1000)...)
	input := []unix.PollFd{{Fd: int32(a.Descriptor()), Events: unix.POLLIN}}
	if n := testing.AllocsPerRun(50, func() {
		if _, err := a.Transmit(v); err != nil {
			t.Fatal(err)
		}
		awaitInput(t, input) // a busy kernel delivers later
		n, err := a.Receive(in)
		if n == 0 || err != nil {
			t.Fatal(n, err)
		}
		a.Sender(0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
