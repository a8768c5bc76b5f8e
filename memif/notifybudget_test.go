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
		duplicates = append(duplicates, fd)
		all = append(all, fd)
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

// burn takes processor time of the thread, as the kernel does when it tells thousands of epolls.
func burn(d time.Duration) {
	start := timeOfThread()
	for timeOfThread()-start < d {
	}
}

// A client with two queues can have one eventfd that is watched by thousands of epolls and one that is not, or stop
// watching for a moment. Fast notifications between the slow ones take nothing back.
func TestFastNotificationsDoNotHideSlowOnes(t *testing.T) {
	var b notifyBudget
	for range 30 {
		if b.run(func() { burn(5 * time.Millisecond) }) {
			return
		}
		for range 3 {
			if b.run(func() {}) {
				t.Fatal("a fast notification is too much")
			}
		}
	}
	t.Errorf("30 notifications of 5 ms took 150 ms, and the client stays: debt %v, %d slow ones", b.debt, b.slow)
}

func TestAClientDoesNotHideSlowNotificationsBehindASecondQueue(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	server, client := connectPair(t, l, ClientConfig{RxQueues: 2})
	rx := client.RxQueues()
	watch(t, rx[0].FD(), 500, 200)
	for n := 0; n < 100 && server.Err() == nil; n++ {
		for n, q := range rx {
			q.Arm()
			server.TxQueues()[n].Send(packets(1, 64))
			q.Receive(buffers(1))
		}
	}
	if !errors.Is(server.Err(), ErrNotifications) {
		t.Errorf("after 100 slow notifications: %v", server.Err())
	}
}

// The one slow notification that is not measured is made up for before another one is not.
func TestASuspicionLastsUntilTheTimeIsMadeUpFor(t *testing.T) {
	var b notifyBudget
	before := time.Since(processStart)
	b.suspect(20 * time.Millisecond)
	after := time.Since(processStart)
	until := time.Duration(b.suspectedUntil.Load())
	if until < before+2*time.Second || until > after+2*time.Second {
		t.Errorf("20 ms are suspected for %v, want 2 s", until-before)
	}
	if b.suspect(slowNotification); time.Duration(b.suspectedUntil.Load()) != until {
		t.Error("a notification that is not slow changes the suspicion")
	}
	if b.suspect(2 * slowNotification); time.Duration(b.suspectedUntil.Load()) != until {
		t.Error("a less slow notification shortens the suspicion")
	}
}

func TestClientThatIsNotifiedOftenStaysConnected(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	server, client := connectPair(t, l, ClientConfig{})
	rx := client.RxQueues()[0]
	for range 20000 {
		server.notified.suspect(time.Second) // as if the thread had waited for a processor
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

// A machine that stood still during a notification is no evidence against the client, however long it did, and however
// often that happens.
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
