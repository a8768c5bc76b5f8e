package garp

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/neighbour"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/pod"
)

const secretOfAll = "a secret of 23 letters."

var mac = netaddr.MAC{2, 0xfe, 10, 5, 0, 7}

// lab has an announcer, what it logs, and an attachment with one memif.
type lab struct {
	*testing.T
	announcer Announcer
	at        pod.Attachment
	log       bytes.Buffer
}

func newLab(t *testing.T) *lab {
	l := &lab{T: t}
	l.announcer = Announcer{
		Secret:    func(string) secret.Text { return secretOfAll },
		IsBridged: func(*pod.Attachment, *pod.Interface) bool { return true },
		Log:       slog.New(slog.NewTextHandler(&l.log, nil)),
	}
	l.at.Interfaces = []pod.Interface{
		{Name: "eth0", Type: pod.TypeTap, Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.2/32")}},
		{
			Name: "m1", Type: pod.TypeMemif, MAC: mac, MTU: 1500,
			Memif: &pod.Memif{
				SocketPath: filepath.Join(t.TempDir(), "s"),
				ID:         1,
				Mode:       memif.Ethernet.String(),
				RingSize:   1024,
				BufferSize: 2048,
			},
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.5.0.7/24"), netip.MustParsePrefix("fd00:5::7/64")},
		},
	}
	return l
}

func (l *lab) memif() *pod.Interface { return &l.at.Interfaces[1] }

// server serves the memif, and returns the frames of the first connection when that has ended.
func (l *lab) server() (frames func() [][]byte) {
	l.Helper()
	connected := make(chan *memif.Conn, 1)
	gone := make(chan struct{})
	listener, err := memif.Listen(l.memif().Memif.SocketPath, memif.ListenOptions{})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = listener.Close() })
	_, err = listener.Add(memif.Config{
		ID:           1,
		Secret:       secretOfAll,
		Connected:    func(c *memif.Conn) { connected <- c },
		Disconnected: func(*memif.Conn, error) { close(gone) },
	})
	if err != nil {
		l.Fatal(err)
	}
	received := make(chan [][]byte, 1)
	go func() {
		select {
		case c := <-connected:
			received <- receiveUntil(gone, c)
			c.Release()
		case <-l.Context().Done():
		}
	}()
	return func() [][]byte { return <-received }
}

// silence makes something listen at the socket of the memif that never answers.
func (l *lab) silence() {
	l.Helper()
	var config net.ListenConfig
	silent, err := config.Listen(context.Background(), "unixpacket", l.memif().Memif.SocketPath)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = silent.Close() })
}

// receiveUntil reads frames of a connection until it ends.
func receiveUntil(gone <-chan struct{}, c *memif.Conn) (frames [][]byte) {
	queue := c.RxQueues()[0]
	for {
		v := [][]byte{make([]byte, 2048)}
		if queue.Receive(v) == 1 {
			frames = append(frames, v[0])
			continue
		}
		select {
		case <-gone:
			return frames
		default:
		}
	}
}

func TestAddressesOfBothFamiliesAreAnnounced(t *testing.T) {
	l := newLab(t)
	frames := l.server()
	l.announcer.Announce(t.Context(), &l.at)
	var want [][]byte
	for _, prefix := range l.memif().Addresses {
		want = append(want, neighbour.Frame(mac, prefix.Addr()))
	}
	if got := frames(); !slices.EqualFunc(got, want, bytes.Equal) || l.log.Len() > 0 {
		t.Errorf("frames % x, want % x; log %s", got, want, &l.log)
	}
}

// No one is asked by ARP for the addresses of these interfaces. Nothing listens at their sockets, so an attempt would
// be logged.
func TestInterfacesWithoutNeighboursAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(l *lab){
		"a network of type L3": func(l *lab) {
			l.announcer.IsBridged = func(*pod.Attachment, *pod.Interface) bool { return false }
		},
		"mode ip":          func(l *lab) { l.memif().Memif.Mode = memif.IP.String() },
		"a direct network": func(l *lab) { l.memif().Memif.Role = pod.RoleServer },
		"no address":       func(l *lab) { l.memif().Addresses = nil },
		"no MAC":           func(l *lab) { l.memif().MAC = netaddr.MAC{} },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			change(l)
			l.announcer.Announce(t.Context(), &l.at)
			if l.log.Len() > 0 {
				t.Error(&l.log)
			}
		})
	}
}

// Whatever the dataplane does, the ADD goes on, and the log says what is missing.
func TestAnnouncementsThatFailAreLogged(t *testing.T) {
	for name, tt := range map[string]struct {
		serve func(l *lab)
		why   string
	}{
		"nothing listens": {func(*lab) {}, "connect: "},
		"the secret is another one": {
			func(l *lab) {
				l.server()
				l.announcer.Secret = func(string) secret.Text { return "another one" }
			},
			"incorrect secret",
		},
		"the server is silent": {(*lab).silence, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			tt.serve(l)
			l.announcer.Announce(t.Context(), &l.at)
			text := l.log.String()
			if !strings.Contains(text, "are not announced") || !strings.Contains(text, "interface=m1") ||
				!strings.Contains(text, tt.why) {
				t.Errorf("log %q, want the interface and %q", text, tt.why)
			}
		})
	}
}

// All memifs share the time, so the log of a pod with many is one line.
func TestADataplaneThatHangsIsLoggedOnceForAPod(t *testing.T) {
	l := newLab(t)
	l.silence()
	second := *l.memif()
	second.Name = "m2"
	l.at.Interfaces = append(l.at.Interfaces, second)
	l.announcer.Announce(t.Context(), &l.at)
	if text := l.log.String(); strings.Count(text, "are not announced") != 1 || strings.Contains(text, "m2") {
		t.Errorf("log %q, want one line about m1", text)
	}
}

func TestNothingIsLoggedForAPodThatIsGone(t *testing.T) {
	l := newLab(t)
	l.silence()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.announcer.Announce(ctx, &l.at)
	if l.log.Len() > 0 {
		t.Error(&l.log)
	}
}
