package memif

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newBroker(t *testing.T) *Broker {
	t.Helper()
	b, err := StartBroker(slog.New(slog.DiscardHandler), brokerArgument)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// alive returns the process id, when there is one: signals to process 0 would reach the tests.
func (b *Broker) alive(t *testing.T) (pid int) {
	t.Helper()
	eventually(t, "a broker process", func() bool { pid = b.PID(); return pid > 0 })
	return pid
}

// kill kills the process and waits for the next one.
func (b *Broker) kill(t *testing.T) {
	t.Helper()
	before := b.alive(t)
	if err := unix.Kill(before, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another broker process", func() bool { now := b.PID(); return now != 0 && now != before })
}

// bothWays passes a packet in each direction.
func bothWays(t *testing.T, a, b *Conn) {
	t.Helper()
	for _, way := range [][2]*Conn{{a, b}, {b, a}} {
		want := packets(1, 100)
		if n := way[0].TxQueues()[0].Send(want); n != 1 {
			t.Fatalf("%d packets sent: %v", n, way[0].Err())
		}
		got := buffers(1)
		eventually(t, "a packet", func() bool { return way[1].RxQueues()[0].Receive(got) == 1 })
	}
}

func TestConnectionsSurviveTheBrokerProcess(t *testing.T) {
	b := newBroker(t)
	l := newLab(t, ListenOptions{Broker: b})
	l.add(t, hostileConfig)
	server, client := connectPair(t, l, ClientConfig{ID: 1, Secret: hostileConfig.Secret})
	for range 3 {
		b.kill(t)
		bothWays(t, server, client)
	}
	if err := server.Err(); err != nil {
		t.Fatalf("the connection ended: %v", err)
	}
	client.Close()
	_ = await(t, l.disconnected, "end of the connection")
	server.Release()
	l.stillServes(t)
	eventually(t, "the broker has no clients", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.clients) == 0
	})
}

func TestServerEndsAConnectionWhoseBrokerProcessWasKilled(t *testing.T) {
	b := newBroker(t)
	l := newLab(t, ListenOptions{Broker: b})
	i := l.add(t, hostileConfig)
	_, client := connectPair(t, l, ClientConfig{ID: 1, Secret: hostileConfig.Secret})
	b.kill(t)
	i.Disconnect("moved")
	_ = await(t, client.Gone(), "end of the connection")
	if got := reasonFrom(client.Err()); got != "moved" {
		t.Errorf("the client got %q", got)
	}
	_ = await(t, l.disconnected, "end of the connection")
}

// A process may die between the server's last message of a handshake and the time when the connection can be resumed.
func TestConnectionThatCannotBeResumedEnds(t *testing.T) {
	b := newBroker(t)
	l := newLab(t, ListenOptions{Broker: b})
	l.addReleasing(t, hostileConfig)
	_, client := connectPair(t, l, ClientConfig{ID: 1, Secret: hostileConfig.Secret})
	b.mu.Lock()
	for _, c := range b.clients {
		c.established = false
	}
	b.mu.Unlock()
	b.kill(t)
	_ = await(t, client.Gone(), "end of the connection")
	_ = await(t, l.disconnected, "end of the connection")
	l.stillServes(t)
}

// A relay that arrives just after the end of the connection is closed; otherwise the process would keep the client.
func TestClientIsRemovedWhenItsConnectionEndsWithoutABrokerProcess(t *testing.T) {
	b := newBroker(t)
	l := newLab(t, ListenOptions{Broker: b})
	i := l.addReleasing(t, hostileConfig)
	for range 20 {
		client, err := Connect(t.Context(), ClientConfig{Socket: l.Path(), ID: 1, Secret: hostileConfig.Secret})
		if err != nil {
			t.Fatal(err)
		}
		await(t, l.connected, "connection")
		if err := unix.Kill(b.alive(t), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		i.Disconnect("moved")
		_ = await(t, client.Gone(), "end of the connection")
		client.Release()
		_ = await(t, l.disconnected, "end of the connection")
	}
	eventually(t, "the broker has no clients", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.clients) == 0
	})
}

func TestListenerIsClosedWithoutABrokerProcess(t *testing.T) {
	b := newBroker(t)
	l := newLab(t, ListenOptions{Broker: b})
	if err := unix.Kill(b.alive(t), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waiting := newLiar(t, l.Path())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if kind, _ := waiting.firstAnswer(); kind != 0 {
		t.Errorf("answered %d", kind)
	}
	eventually(t, "the broker has no listener", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.listeners) == 0
	})
}

// A socket may have more interfaces than clients may be pending: connected ones are not.
func TestConnectedClientsTakeNoRoomOfThoseThatConnect(t *testing.T) {
	for what, b := range map[string]*Broker{"with a broker": newBroker(t), "without a broker": nil} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t, ListenOptions{Broker: b, MaxPending: 1})
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			for id := range uint32(3) {
				own := hostileConfig
				own.ID = id
				l.addReleasing(t, own)
				client, err := Connect(ctx, ClientConfig{Socket: l.Path(), ID: id, Secret: own.Secret})
				if err != nil {
					t.Fatalf("client %d: %v", id, err)
				}
				t.Cleanup(func() {
					client.Close()
					_ = await(t, client.Gone(), "end of the connection")
					client.Release()
				})
				await(t, l.connected, "connection")
			}
		})
	}
}

// A node may have any number of connected clients. Only those whose sockets do not close make the process useless.
func TestBrokerProcessIsStuckByClientsThatDoNotClose(t *testing.T) {
	for what, c := range map[string]struct {
		ended time.Time
		want  bool
	}{
		"connected":               {time.Time{}, false},
		"ended just now":          {time.Now(), false},
		"ended and do not close":  {time.Now().Add(-stuckAfter - time.Second), true},
		"ended, not for too long": {time.Now().Add(-stuckAfter / 2), false},
	} {
		b := &Broker{clients: map[uint64]*brokeredClient{}}
		for n := range uint64(maxStuck) {
			b.clients[n] = &brokeredClient{ended: c.ended, established: true}
		}
		if got := b.isStuck(); got != c.want {
			t.Errorf("%d clients that are %s: stuck %t, want %t", maxStuck, what, got, c.want)
		}
		delete(b.clients, 0)
		if b.isStuck() {
			t.Errorf("%d clients that are %s: stuck", maxStuck-1, what)
		}
	}
}

// lingering returns a TCP socket whose last close takes an hour, because its peer does not read.
func lingering(t *testing.T) (fd int) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrInet4{Port: listener.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	if err := unix.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.(*net.TCPConn).SetLinger(0); _ = peer.Close() }) // a reset, which ends the close
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{
		Onoff:  1,
		Linger: 3600,
	}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for full := make([]byte, 1<<16); err == nil; {
		_, err = unix.Write(fd, full)
	}
	return fd
}

// giveLast suspends the broker process while f passes descriptors and closes its own, so that the process has the last
// references. The signal at the end interrupts blocked threads of the process.
func (b *Broker) giveLast(t *testing.T, f func()) {
	t.Helper()
	pid := b.alive(t)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the broker process is suspended", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	f()
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// sayWithLingering passes a descriptor whose close blocks.
func (l *liar) sayWithLingering(kind messageType) {
	fd := lingering(l.t)
	l.say(newMessage(kind), fd)
	_ = unix.Close(fd)
}

// A client can keep the broker process in a close that no signal ends, and the process then keeps its sockets: here the
// test does. After a crash of the dataplane the next one can bind them all the same.
func TestSocketCanBeBoundWhileAnEndedBrokerKeepsIt(t *testing.T) {
	b := newBroker(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path, ListenOptions{Broker: b})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Add(hostileConfig); err != nil {
		t.Fatal(err)
	}
	if kind, _ := newLiar(t, path).answer(); kind != helloMessage { // the process has the socket
		t.Fatalf("the client got %d", kind)
	}
	kept, err := l.socket.File()
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	b.Close()
	again, err := bind(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// Finding 1a.
func TestDescriptorWhoseCloseBlocksDoesNotBlockTheServer(t *testing.T) {
	for name, broker := range map[string]func(*testing.T) *Broker{
		"without a broker": func(*testing.T) *Broker { return nil },
		"with a broker":    newBroker,
	} {
		t.Run(name, func(t *testing.T) {
			b := broker(t)
			l := newLab(t, ListenOptions{Broker: b})
			i := l.addReleasing(t, hostileConfig)
			liar := newLiar(t, l.Path())
			liar.honest(liar.memfd(liedSize, unix.MFD_ALLOW_SEALING), liedSize)
			await(t, l.connected, "connection")
			if b != nil {
				b.giveLast(t, func() { liar.sayWithLingering(ackMessage) })
			} else {
				fd := lingering(t)
				liar.say(newMessage(ackMessage), fd)
				t.Cleanup(func() {
					_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
					_ = unix.Close(fd)
				})
			}
			_ = await(t, l.disconnected, "end of the connection")
			if err := i.Close(); err != nil {
				t.Fatal(err)
			}
			l.addReleasing(t, hostileConfig)
			l.stillServes(t)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Finding 1b.
func TestDescriptorsWhoseCloseBlocksTakeABoundedNumberOfThreads(t *testing.T) {
	const (
		pending  = 4
		attempts = 40
	)
	b := newBroker(t)
	other := newLab(t, ListenOptions{Broker: b})
	other.addReleasing(t, hostileConfig)
	l := newLab(t, ListenOptions{Broker: b, MaxPending: pending})
	l.addReleasing(t, hostileConfig)
	b.giveLast(t, func() {
		for range attempts {
			liar := newLiar(t, l.Path())
			liar.say(newMessage(connectMessage), -1) // unexpected
			liar.sayWithLingering(ackMessage)
			_ = liar.socket.Close()
		}
	})
	eventually(t, "the threads of the broker process are blocked", func() bool {
		return closing(t, b.alive(t)) == pending
	})
	for range 10 {
		other.stillServes(t)
	}
	if n := closing(t, b.alive(t)); n > pending {
		t.Errorf("%d threads of the broker process are blocked in close, want at most %d", n, pending)
	}
	if n := closing(t, os.Getpid()); n > 0 {
		t.Errorf("%d threads of this process are blocked in close", n)
	}
	if err := unix.Kill(b.alive(t), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	other.stillServes(t)
}

// closing returns the number of a process's threads in close.
func closing(t *testing.T, pid int) (n int) {
	t.Helper()
	calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil || len(calls) == 0 {
		t.Fatalf("no threads of process %d: %v", pid, err)
	}
	for _, call := range calls {
		if now, err := os.ReadFile(call); err == nil &&
			strings.HasPrefix(string(now), fmt.Sprintf("%d ", unix.SYS_CLOSE)) {
			n++
		}
	}
	return n
}

// A client that reconnects all the time is delayed, and others are not. The test checks only a lower bound of the time.
func TestClientsAreAcceptedAtABoundedRate(t *testing.T) {
	const more = 50
	l := newLab(t, ListenOptions{Broker: newBroker(t)})
	l.add(t, hostileConfig)
	began := time.Now()
	for range acceptBurst + more {
		client := newLiar(t, l.Path())
		if kind, _ := client.answer(); kind != helloMessage {
			t.Fatalf("answered %d", kind)
		}
		client.leave()
	}
	if took := time.Since(began); took < more*time.Second/acceptRate {
		t.Errorf("%d clients in %s", acceptBurst+more, took)
	}
}

// hogArgument makes this program a process that uses up its user's in-flight descriptors.
const hogArgument = "memif-hog"

// hogDescriptors is above the limit of open files of a broker process, which the kernel applies to in-flight
// descriptors.
const hogDescriptors = 20000

// hog sends descriptors that no process receives, until the kernel refuses more. It prints that, and waits for the end
// of its input.
func hog() error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: hogDescriptors, Max: hogDescriptors}); err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	rights := make([]int, 250) // a message has at most 253
	for i := range rights {
		rights[i] = int(null.Fd())
	}
	for {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		for err == nil {
			err = unix.Sendmsg(pair[0], []byte{1}, unix.UnixRights(rights...), nil, 0)
		}
		if errors.Is(err, unix.ETOOMANYREFS) {
			fmt.Println("full")
			_, _ = os.Stdin.Read(make([]byte, 1))
			return nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
}

// startHog runs hog as another user until the test ends.
func startHog(t *testing.T, user uint32) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", hogArgument)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("needs the right to start processes of other users: %v", err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "full" {
		t.Fatalf("output of the process that uses up descriptors: %q: %v", line, err)
	}
}

// The kernel limits in-flight descriptors for each user. A pod with the user of the broker process could prevent all
// clients of the node from connecting.
func TestPodCannotUseUpTheInFlightDescriptorsOfTheBrokerProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, user := range []uint32{65534, 1000} {
		startHog(t, user)
	}
	l := newLab(t, ListenOptions{Broker: newBroker(t)})
	l.add(t, hostileConfig)
	l.stillServes(t)
}
