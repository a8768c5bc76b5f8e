package forward_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

// sctpSize is more than the kernel sends in one GSO packet.
const sctpSize = 256 << 10

// sctp sends bytes to a pod over an association of both kernels, which verify the CRC.
func (p *pod) sctp(t *testing.T, q *pod, to netip.Addr) {
	t.Helper()
	listener := q.sctpSocket(t, to)
	if err := errors.Join(unix.Bind(listener, sctpAddress(to)), unix.Listen(listener, 1)); err != nil {
		t.Fatal(err)
	}
	type result struct {
		data []byte
		err  error
	}
	received := make(chan result, 1)
	go func() {
		var r result
		c, err := again(func() (int, error) {
			c, _, err := unix.Accept(listener)
			return c, err
		})
		if r.err = err; err == nil {
			r.data, r.err = readAll(c)
			_ = unix.Close(c)
		}
		received <- r
	}()
	sender := p.sctpSocket(t, to)
	// After a signal the kernel goes on, and the first write waits for the association.
	if err := unix.Connect(sender, sctpAddress(to)); err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatalf("no association with %v: %v", to, err)
	}
	sent := make([]byte, sctpSize)
	_, _ = rand.Read(sent)
	for b := sent; len(b) > 0; {
		n, err := again(func() (int, error) { return unix.Write(sender, b[:min(len(b), 16<<10)]) })
		if err != nil {
			t.Fatalf("SCTP to %v stalls: %v", to, err)
		}
		b = b[n:]
	}
	_ = unix.Shutdown(sender, unix.SHUT_WR)
	if r := <-received; r.err != nil || !bytes.Equal(r.data, sent) {
		t.Errorf("SCTP to %v: received %d of %d bytes, or others: %v", to, len(r.data), len(sent), r.err)
	}
}

// sctpSocket returns a socket of the pod whose calls end by bulkTime.
func (p *pod) sctpSocket(t *testing.T, a netip.Addr) (fd int) {
	t.Helper()
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	var err error
	netnstest.Do(t, p.namespace, func() {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	})
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Skipf("this kernel has no SCTP: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	limit := unix.NsecToTimeval(int64(bulkTime))
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

// again repeats a call that a signal of Go's runtime interrupts: with a time limit the kernel does not.
func again(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func sctpAddress(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: 5003, Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: 5003, Addr: a.As16()}
}

func readAll(fd int) (all []byte, err error) {
	limit := unix.NsecToTimeval(int64(bulkTime))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return nil, err
	}
	b := make([]byte, 1<<16)
	for {
		n, err := again(func() (int, error) { return unix.Read(fd, b) })
		if n <= 0 || err != nil {
			return all, err
		}
		all = append(all, b[:n]...)
	}
}
