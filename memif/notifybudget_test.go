package memif

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watch watches an eventfd by each of n duplicates in each of m epolls, until the test ends.
func watch(t *testing.T, eventfd, n, m int) {
	t.Helper()
	var duplicates []int
	var all []int
	t.Cleanup(func() { closeAll(all) })
	for range n {
		fd, err := unix.Dup(eventfd)
		if err != nil {
			t.Fatal(err)
		}
		duplicates, all = append(duplicates, fd), append(all, fd)
	}
	for range m {
		epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, epoll)
		for _, fd := range duplicates {
			event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}
			if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
				t.Skip("the user may not watch so many descriptors (fs.epoll.max_user_watches): ", err)
			}
		}
	}
}

// A client that watches its eventfd by many epolls takes milliseconds of the thread that notifies it.
func TestClientWhoseNotificationsTakeLongIsDisconnectedAndRefused(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	server, client := connectPair(t, l, ClientConfig{})
	rx := client.RxQueues()[0]
	watch(t, rx.FD(), 500, 200)
	for range 100 {
		rx.Arm()
		server.TxQueues()[0].Send(packets(1, 64))
		rx.Receive(buffers(1))
	}
	if !errors.Is(server.Err(), ErrNotifications) {
		t.Fatalf("the connection ended with %v", server.Err())
	}
	if why := await(t, l.disconnected, "end of the connection"); !errors.Is(why, ErrNotifications) {
		t.Errorf("the end was reported with %v", why)
	}
	server.Release()
	_, err := Connect(t.Context(), ClientConfig{Socket: l.Path()})
	if reasonFrom(err) != ErrNotifications.Error() {
		t.Errorf("another connection: %v", err)
	}
}

func TestClientThatIsNotifiedOftenStaysConnected(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	server, client := connectPair(t, l, ClientConfig{})
	rx := client.RxQueues()[0]
	for range 20000 {
		server.notified.suspected.Store(true) // as if the thread had waited for a processor
		rx.Arm()
		server.TxQueues()[0].Send(packets(1, 64))
		rx.Receive(buffers(1))
	}
	if server.Err() != nil || server.TxQueues()[0].Stats().Rings != 20000 {
		t.Errorf("after %d notifications: %v", server.TxQueues()[0].Stats().Rings, server.Err())
	}
}

func TestSlowNotificationsTakeAHundredthOfTheTime(t *testing.T) {
	var b notifyBudget
	now := time.Unix(1000, 0)
	for n := range fewestSlow {
		if b.spend(notifyBurst/fewestSlow, now) || b.isExceeded(now) {
			t.Errorf("%d notifications within the burst are too much", n+1)
		}
	}
	if !b.spend(time.Millisecond, now) || !b.isExceeded(now) {
		t.Error("more than the burst is not too much")
	}
	if at := now.Add(notifyShare*time.Millisecond - time.Nanosecond); !b.isExceeded(at) {
		t.Error("the time is not made up for yet")
	}
	if at := now.Add(notifyShare * time.Millisecond); b.isExceeded(at) {
		t.Error("the time is made up for")
	}
}

// A machine that stood still during a notification is no evidence against the client, however long it did, and however often that happens.
func TestFewSlowNotificationsAreNoEvidence(t *testing.T) {
	var b notifyBudget
	now := time.Unix(1000, 0)
	for range 3 {
		for n := range fewestSlow - 1 {
			if b.spend(time.Second, now) || b.isExceeded(now) {
				t.Errorf("%d slow notifications are too much", n+1)
			}
		}
		now = now.Add(time.Hour) // the time is made up for
	}
	for range fewestSlow - 1 {
		b.spend(time.Second, now)
	}
	if !b.spend(time.Microsecond, now) {
		t.Errorf("%d slow notifications are not too much", fewestSlow)
	}
}
