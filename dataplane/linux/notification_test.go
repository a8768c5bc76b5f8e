package linux

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
)

// listener collects notifications until the test ends.
type listener struct {
	*Subscription
	t       *testing.T
	mu      sync.Mutex
	changes []Notification
}

func listen(t *testing.T) *listener {
	t.Helper()
	netnstest.Require(t)
	n, err := Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{Subscription: n, t: t}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(ctx, func(c Notification) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.changes = append(l.changes, c)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	return l
}

// await waits for a notification after the first n.
func (l *listener) await(want Notification, after int) {
	l.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	limit := time.After(20 * time.Second)
	defer tick.Stop()
	for !slices.Contains(l.seen()[after:], want) {
		select {
		case <-tick.C:
		case <-limit:
			l.t.Fatalf("no notification of %+v in %+v", want, l.seen()[after:])
		}
	}
}

func (l *listener) seen() []Notification {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Notification(nil), l.changes...)
}

func makeVeth(t *testing.T, name string) netlink.Link {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "p"}); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(name)
	peer, err2 := netlink.LinkByName(name + "p")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(netlink.LinkSetUp(link), netlink.LinkSetUp(peer)); err != nil {
		t.Fatal(err)
	}
	return link
}

// harms runs each change that causes a notification, in order.
func harms(t *testing.T, link netlink.Link, each func(what string, change func() error)) {
	t.Helper()
	address, err := netlink.ParseAddr("10.99.0.1/24")
	if err == nil {
		err = netlink.AddrAdd(link, address)
	}
	_, far, err2 := net.ParseCIDR("10.98.0.0/24")
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: far}
	if err := errors.Join(err, err2, netlink.RouteAdd(route)); err != nil {
		t.Fatal(err)
	}
	each("route deleted", func() error { return netlink.RouteDel(route) })
	each("address deleted", func() error { return netlink.AddrDel(link, address) })
	each("link set down", func() error { return netlink.LinkSetDown(link) })
	each("link deleted", func() error { return netlink.LinkDel(link) })
}

func TestNotificationsOfTheAgentsNamespaceNameTheLink(t *testing.T) {
	l := listen(t)
	link := makeVeth(t, "note0")
	harms(t, link, func(what string, change func() error) {
		before := len(l.seen())
		if err := change(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		t.Log(what)
		l.await(Notification{Link: "note0"}, before)
	})
}

func TestOnlyFollowedNamespacesAreNotified(t *testing.T) {
	l := listen(t)
	followed := netnstest.New(t)
	other := netnstest.New(t)
	if err := errors.Join(l.Follow(followed), l.Follow(other)); err != nil {
		t.Fatal(err)
	}
	l.Forget(other) // the kernel still sends notifications, because the namespace has an nsid
	for _, path := range []string{other, followed} {
		netnstest.Do(t, path, func() {
			link := makeVeth(t, "note1")
			harms(t, link, func(what string, change func() error) {
				before := len(l.seen())
				if err := change(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if t.Log(path, what); path == followed {
					l.await(Notification{Namespace: followed}, before)
				}
			})
		})
	}
	for _, c := range l.seen() {
		if c == (Notification{}) || c.Namespace != followed && c.Link == "note1" {
			t.Errorf("notified of %+v", c)
		}
	}
	l.Forget(followed)
	n := len(l.seen())
	netnstest.Do(t, followed, func() {
		if err := netlink.LinkDel(makeVeth(t, "note2")); err != nil {
			t.Fatal(err)
		}
	})
	own := makeVeth(t, "note3")
	if err := netlink.LinkDel(own); err != nil {
		t.Fatal(err)
	}
	l.await(Notification{Link: "note3"}, n)
	for _, c := range l.seen()[n:] {
		if c.Namespace == followed {
			t.Errorf("notified of %+v after Forget", c)
		}
	}
}

// An open socket in a namespace would keep it and its links alive.
func TestSubscriptionDoesNotKeepANamespaceAlive(t *testing.T) {
	l := listen(t)
	path := netnstest.New(t)
	if err := l.Follow(path); err != nil {
		t.Fatal(err)
	}
	host := makeVeth(t, "note4")
	peer, err := netlink.LinkByName("note4p")
	if err != nil {
		t.Fatal(err)
	}
	netns, err := os.Open(path)
	if err == nil {
		err = errors.Join(netlink.LinkSetNsFd(peer, int(netns.Fd())), netns.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	before := len(l.seen())
	netnstest.Remove(t, path)
	l.await(Notification{Link: host.Attrs().Name}, before) // the kernel deletes both ends
}

func TestFollowReturnsErrGoneForAMissingNamespace(t *testing.T) {
	l := listen(t)
	if err := l.Follow(filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want %v", err, ErrGone)
	}
}

// A pod can change its addresses at any rate.
func TestReadNotificationsAreBounded(t *testing.T) {
	l := listen(t)
	path := netnstest.New(t)
	if err := l.Follow(path); err != nil {
		t.Fatal(err)
	}
	const changes = 30_000
	begun := time.Now()
	netnstest.Do(t, path, func() {
		link := makeVeth(t, "flood0")
		address, err := netlink.ParseAddr("10.99.0.1/24")
		if err != nil {
			t.Fatal(err)
		}
		for range changes {
			if err := errors.Join(netlink.AddrAdd(link, address), netlink.AddrDel(link, address)); err != nil {
				t.Fatal(err)
			}
		}
	})
	n := len(l.seen())
	if most := readBurst + readRate*time.Since(begun).Seconds(); float64(n) > most {
		t.Errorf("%d notifications were read of %d changes, want at most %.0f", n, changes, most)
	}
	l.await(Notification{Namespace: path}, 0)
}
