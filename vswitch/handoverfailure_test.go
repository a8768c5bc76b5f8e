package vswitch

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/binapi/memclnt"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
)

// dialDesk connects to the desk of a dataplane as a standby does.
func dialDesk(t *testing.T, socket, hello string) *net.UnixConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unixpacket", HandoverPath(socket))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte(hello))
	must(t, err)
	return conn.(*net.UnixConn)
}

// After any failure of the standby the old dataplane deletes its taps and frees the lock, as without a standby.
func TestDataplaneEndsAsWithoutStandbyIfTheHandoverFails(t *testing.T) {
	netnstest.Require(t)
	for name, standby := range map[string]func(t *testing.T, conn *net.UnixConn){
		"ends at once": func(_ *testing.T, conn *net.UnixConn) { _ = conn.Close() },
		"ends after the size": func(_ *testing.T, conn *net.UnixConn) {
			_, _ = receiveMessage(conn)
			_ = conn.Close()
		},
		"ends after the parcel": func(_ *testing.T, conn *net.UnixConn) {
			_, _ = receiveParcel(conn)
			_ = conn.Close()
		},
		"ends before it is ready": func(t *testing.T, conn *net.UnixConn) { takeParcel(t, conn); _ = conn.Close() },
		"sends something else": func(t *testing.T, conn *net.UnixConn) {
			takeParcel(t, conn)
			_, _ = conn.Write([]byte("garbage"))
		},
		"is never ready": func(t *testing.T, conn *net.UnixConn) {
			takeParcel(t, conn)
			_, _ = receiveMessage(conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			p := addPod(t, r.connect(t), 1, 0)
			conn := dialDesk(t, r.socket, string(greeting))
			must(t, expect(conn, greeting))
			done := make(chan struct{})
			go func() { defer close(done); standby(t, conn) }()
			begun := time.Now()
			r.stop()
			r.done <- <-r.done
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("the end took %s", took)
			}
			<-done
			if err := Run(cancelled(t), Config{APISocket: r.socket}); err != nil {
				t.Error("the next dataplane does not start:", err)
			}
			if hasLink(t, p) {
				t.Error("eth0 is still there")
			}
		})
	}
}

func cancelled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func hasLink(t *testing.T, p pod) (has bool) {
	t.Helper()
	netnstest.Do(t, p.netns, func() { _, err := netlink.LinkByName("eth0"); has = err == nil })
	return has
}

// takeParcel receives all that a dataplane hands over and closes it.
func takeParcel(t *testing.T, conn *net.UnixConn) {
	p, err := receiveParcel(conn)
	if err != nil {
		t.Error(err)
		return
	}
	passed, err := receivePassed(conn, p)
	if err != nil || len(passed.Ports) == 0 {
		t.Errorf("%d ports, %v", len(passed.Ports), err)
	}
	closePassed(passed)
}

func TestStandbyOfAnotherVersionIsRefused(t *testing.T) {
	r := start(t)
	conn := dialDesk(t, r.socket, "weft-vswitch handover 1, state 1")
	if _, err := receiveMessage(conn); err == nil {
		t.Error("the dataplane keeps it")
	}
	// The desk stays open.
	must(t, expect(dialDesk(t, r.socket, string(greeting)), greeting))
}

// A standby of another version connects five times a second until the dataplane ends.
func TestRefusalOfAStandbyIsLoggedOnce(t *testing.T) {
	var refusals atomic.Int64
	log := slog.New(slog.NewTextHandler(writer(func(line string) {
		if strings.Contains(line, "standby refused") {
			refusals.Add(1)
		}
	}), nil))
	socket := serveDesk(t, log, func(l net.Listener) net.Listener { return l })
	for range 3 {
		if _, err := receiveMessage(dialDesk(t, socket, "weft-vswitch handover 1, state 1")); err == nil {
			t.Error("the dataplane keeps it")
		}
	}
	must(t, expect(dialDesk(t, socket, string(greeting)), greeting))
	if n := refusals.Load(); n != 1 {
		t.Errorf("%d refusals are logged", n)
	}
}

// exhausted is a listener of a process that has no descriptor left, once.
type exhausted struct {
	net.Listener
	failed atomic.Bool
}

// Accept fails the first time.
func (e *exhausted) Accept() (net.Conn, error) {
	if !e.failed.Swap(true) {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", unix.EMFILE)}
	}
	return e.Listener.Accept()
}

// The end of the desk would be the end of forwarding.
func TestDeskStaysOpenWithoutDescriptors(t *testing.T) {
	socket := serveDesk(t, testLog(t), func(l net.Listener) net.Listener { return &exhausted{Listener: l} })
	standby := dialDesk(t, socket, string(greeting))
	must(t, standby.SetReadDeadline(time.Now().Add(20*time.Second)))
	must(t, expect(standby, greeting))
}

// serveDesk serves a desk until the test ends, and returns the API socket that it belongs to.
func serveDesk(t *testing.T, log *slog.Logger, of func(net.Listener) net.Listener) (socket string) {
	t.Helper()
	socket = t.TempDir() + "/api.sock"
	ctx, stop := context.WithCancel(context.Background())
	l, err := listenPrivately(ctx, "unixpacket", HandoverPath(socket))
	must(t, err)
	d := newDesk(log)
	ended := make(chan error, 1)
	go func() { ended <- d.serve(ctx, of(l)) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
		d.close()
	})
	return socket
}

// fakeActive serves a desk that hands over what a test says, and holds the lock until it has.
func fakeActive(t *testing.T, socket string, handOver func(conn *net.UnixConn, l *lock)) (ended <-chan struct{}) {
	t.Helper()
	l, err := openLock(LockPath(socket))
	must(t, err)
	must(t, l.take("fake"))
	desk, err := listenPrivately(t.Context(), "unixpacket", HandoverPath(socket))
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer l.release()
		defer desk.Close()
		conn, err := desk.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		standby := conn.(*net.UnixConn)
		if err := greeted(context.Background(), standby); err != nil {
			t.Error(err)
			return
		}
		handOver(standby, l)
	}()
	return done
}

// After any failure of the active dataplane the standby starts without configuration.
func TestStandbyStartsWithoutStateIfTheHandoverFails(t *testing.T) {
	netnstest.Require(t)
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	size := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	state := &model.State{
		Interfaces: []model.InterfaceState{
			{Interface: model.Interface{Index: 0, Name: "local0"}, Donor: model.NoIndex, MACIP: model.NoIndex},
		},
	}
	for name, handOver := range map[string]func(conn *net.UnixConn, l *lock){
		"ends at once":      func(*net.UnixConn, *lock) {},
		"sends no size":     func(conn *net.UnixConn, _ *lock) { _, _ = conn.Write([]byte("?")) },
		"sends a huge size": func(conn *net.UnixConn, _ *lock) { _, _ = conn.Write(size(1 << 60)) },
		"ends in the parcel": func(conn *net.UnixConn, _ *lock) {
			_, _ = conn.Write(size(1000))
			_, _ = conn.Write(make([]byte, 10))
		},
		"sends garbage": func(conn *net.UnixConn, _ *lock) {
			_, _ = conn.Write(size(100))
			_, _ = conn.Write(make([]byte, 100))
		},
		"sends invalid state": func(conn *net.UnixConn, _ *lock) {
			_ = sendParcel(conn, &model.State{}, forward.OpenPorts{})
		},
		"passes nothing": func(conn *net.UnixConn, _ *lock) {
			_ = sendParcel(conn, state, forward.OpenPorts{Ports: []forward.OpenPort{{Interface: 1}}})
		},
		"never commits": func(conn *net.UnixConn, _ *lock) {
			_ = sendParcel(conn, state, forward.OpenPorts{
				Ports: []forward.OpenPort{{Interface: 1, Descriptors: []int{int(null.Fd())}}},
			})
			_ = expect(conn, ready)
		},
		"commits without lock": func(conn *net.UnixConn, _ *lock) {
			_ = sendParcel(conn, state, forward.OpenPorts{})
			_ = expect(conn, ready)
			_, _ = conn.Write(commit)
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket := t.TempDir() + "/api.sock"
			done := fakeActive(t, socket, handOver)
			before := openDescriptors(t)
			standby := startStandbyOf(t, Config{APISocket: socket, Name: "next", Log: testLog(t)})
			<-done
			becomesActive(t, socket, "next")
			if _, err := memclnt.NewServiceClient(standby.connect(t)).ControlPing(t.Context(),
				&memclnt.ControlPing{}); err != nil {
				t.Error("the standby does not answer:", err)
			}
			if after := openDescriptors(t); after > before+40 {
				t.Errorf("%d descriptors became %d", before, after)
			}
		})
	}
}

// startStandbyOf is startStandby for an active dataplane that does not wait for that.
func startStandbyOf(t *testing.T, c Config) *running {
	t.Helper()
	r := &running{socket: c.APISocket, done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	c.Standby = true
	r.stop = cancel
	go func() { r.done <- Run(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil {
			t.Error("run:", err)
		}
	})
	return r
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(files)
}

// The lock is never free during a handover: no third process can take it.
func TestLockIsHandedOver(t *testing.T) {
	socket := t.TempDir() + "/api.sock"
	l, err := openLock(LockPath(socket))
	must(t, err)
	must(t, l.take("old"))
	passed, err := unix.FcntlInt(l.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	next, err := openLock(LockPath(socket))
	must(t, err)
	defer next.release()
	number := next.file.Fd()
	must(t, next.adopt(passed, "next"))
	l.held = false
	l.release()
	third, err := openLock(LockPath(socket))
	must(t, err)
	defer third.release()
	if err := third.take("third"); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "next") {
		t.Errorf("a third process gets %v", err)
	}
	if next.file.Fd() != number {
		t.Errorf("descriptor %d became %d", number, next.file.Fd())
	}
}

// The standby's greeting, sizes and pieces come from another process.
func FuzzParcel(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{7, 255, 129, 3, 1, 1})
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = decodeParcel(b) })
}
