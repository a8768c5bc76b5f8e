package vswitch

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
)

// A handover passes the model's state and the descriptors of taps, packet sockets and memifs from a dataplane that ends
// to its standby, by messages of one SOCK_SEQPACKET connection. Until commit nothing has changed: if any step fails or
// takes too long, the standby closes what it received, the old dataplane deletes its interfaces and releases the lock,
// and the standby starts empty.
//
//	standby                      active dataplane
//	greeting          ------->   keeps the connection until it is told to end; then it stops its workers
//	                  <-------   size of the parcel, parcel in pieces, descriptors
//	ready             ------->   closes its copies of the descriptors
//	forwards          <-------   commit, with the locked lock file

// HandoverPath returns the path of the socket on which a dataplane hands over to its standby.
func HandoverPath(apiSocket string) string { return apiSocket + ".handover" }

// handoverTimeout limits a handover from the last vector to ready. Packets wait in the kernel and in rings meanwhile.
// It is about the time that a replay takes otherwise.
var handoverTimeout = time.Second // changed by tests

// acceptPause is the time between attempts to accept a standby.
const acceptPause = time.Second

const (
	greetingTimeout = time.Second
	pieceSize       = 32 << 10
	maxParcel       = 256 << 20
	descriptorsSent = 240 // in one message; the kernel's limit is 253
	maxDescriptors  = 1 << 18
)

var (
	ready  = []byte("ready")
	commit = []byte("commit")
)

// handoverVersion is the version of the messages, with parcel and all types in it but model.State. It also stands for
// what memif.Passed means. A change needs a new version; a test compares the layout of the types.
const handoverVersion = 2

// greeting has the versions of everything that both processes must have in common.
var greeting = fmt.Appendf(nil, "weft-vswitch handover %d, state %d", handoverVersion, model.StateVersion)

// parcel is what a dataplane hands over besides descriptors, which are sent in the order of the ports and sockets.
type parcel struct {
	State   []byte // of model.State
	Ports   []passedPort
	Sockets []string // paths of the listening memif sockets, with one descriptor each
}

// passedPort is a port with its number of descriptors.
type passedPort struct {
	Interface   uint32
	Descriptors int
	Memif       *memif.Passed // the connection of a memif; nil for other ports
}

var errMessage = errors.New("unexpected message in a handover")

// desk is where a dataplane waits for its standby.
type desk struct {
	log *slog.Logger

	mu      sync.Mutex
	standby *net.UnixConn // nil: none
}

func newDesk(log *slog.Logger) *desk { return &desk{log: log} }

// serve accepts standbys until ctx ends. It keeps the last one, which is the head of their queue.
func (d *desk) serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	refused := "" // why, as logged: a refused standby tries again until the dataplane ends
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept standby: %w", err)
		}
		if err != nil { // such as too few descriptors: forwarding continues without a standby
			d.log.Warn("standby not accepted, retrying", "err", err)
			_ = retry.Pause(ctx, acceptPause)
			continue
		}
		standby, is := conn.(*net.UnixConn)
		if !is {
			return errors.Join(errMessage, conn.Close())
		}
		if err := greeted(ctx, standby); err != nil {
			if err.Error() != refused {
				refused = err.Error()
				d.log.Warn("standby refused; it will start without state", "err", err)
			}
			_ = standby.Close()
			continue
		}
		refused = ""
		d.replace(standby)
	}
}

// replace keeps a standby in place of the former one.
func (d *desk) replace(standby *net.UnixConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.standby != nil {
		_ = d.standby.Close()
	}
	d.standby = standby
}

func (d *desk) hasStandby() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.standby != nil
}

// close closes the connection to the standby.
func (d *desk) close() { d.replace(nil) }

// greeted checks the other process and its version.
func greeted(ctx context.Context, conn *net.UnixConn) error {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := checkPeer(conn); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return err
	}
	got, err := receiveMessage(conn)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, greeting) {
		return fmt.Errorf("standby has another version: %q, not %q", got, greeting)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	_, err = conn.Write(greeting)
	return err
}

// checkPeer accepts processes of this process's user and of root only.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if failed := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("SO_PEERCRED: %w", err)
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("process %d of user %d is refused", peer.Pid, peer.Uid)
	}
	return nil
}

// handOver hands the state, the ports and the lock over to the standby, if there is one, and reports whether it has
// them.
func (d *desk) handOver(m *model.Model, open func() forward.OpenPorts, l *lock) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.standby == nil {
		return false
	}
	began := time.Now()
	ports := open()
	if err := handOver(d.standby, m.State(), ports, l.file); err != nil {
		d.log.Warn("handover failed; the standby starts without state",
			"after", time.Since(began).Round(time.Millisecond), "err", err)
		return false
	}
	l.held = false // the standby's
	d.log.Info("handed over to the standby", "ports", len(ports.Ports),
		"took", time.Since(began).Round(time.Millisecond))
	return true
}

func handOver(conn *net.UnixConn, s *model.State, ports forward.OpenPorts, lockFile *os.File) error {
	if err := conn.SetDeadline(time.Now().Add(handoverTimeout)); err != nil {
		return err
	}
	if err := sendParcel(conn, s, ports); err != nil {
		return err
	}
	if err := expect(conn, ready); err != nil {
		return err
	}
	_, _, err := conn.WriteMsgUnix(commit, unix.UnixRights(int(lockFile.Fd())), nil)
	return err
}

func sendParcel(conn *net.UnixConn, s *model.State, ports forward.OpenPorts) error {
	state, err := s.Encode()
	if err != nil {
		return err
	}
	p := parcel{State: state}
	var descriptors []int
	for _, one := range ports.Ports {
		p.Ports = append(p.Ports, passedPort{
			Interface:   one.Interface,
			Descriptors: len(one.Descriptors),
			Memif:       one.Memif,
		})
		descriptors = append(descriptors, one.Descriptors...)
	}
	for _, one := range ports.Sockets {
		p.Sockets = append(p.Sockets, one.Path)
		descriptors = append(descriptors, one.Descriptor)
	}
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(p); err != nil {
		return fmt.Errorf("encode parcel: %w", err)
	}
	if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(body.Len()))); err != nil {
		return err
	}
	for body.Len() > 0 {
		if _, err := conn.Write(body.Next(pieceSize)); err != nil {
			return err
		}
	}
	for len(descriptors) > 0 {
		n := min(len(descriptors), descriptorsSent)
		if _, _, err := conn.WriteMsgUnix([]byte{byte(n)}, unix.UnixRights(descriptors[:n]...), nil); err != nil {
			return fmt.Errorf("pass descriptors: %w", err)
		}
		descriptors = descriptors[n:]
	}
	return nil
}

func expect(conn *net.UnixConn, message []byte) error {
	got, err := receiveMessage(conn)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, message) {
		return fmt.Errorf("%w: %q, not %q", errMessage, got, message)
	}
	return nil
}

// receiveMessage receives a message without descriptors.
func receiveMessage(conn *net.UnixConn) ([]byte, error) {
	b := make([]byte, pieceSize)
	n, err := conn.Read(b)
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}
