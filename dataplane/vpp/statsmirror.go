package vpp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"
	"golang.org/x/sys/unix"
)

// mirror is a private copy of a dataplane's stats segment, which govpp's client reads instead of the segment.
//
// The client follows every pointer and length in the segment. The dataplane moves vectors while the client reads them,
// and may be damaged: the client would end the process with a fault that Go cannot recover from. So each reading copies
// the segment, checks the copy, and then lets the client read it.
type mirror struct {
	source  unix.Stat_t // of the segment
	mem     []byte      // writable; the client has a mapping of its own
	client  *statsclient.StatsClient
	private *os.File
}

// segmentLimit bounds the size of a segment; VPP's default is 32 MiB.
const segmentLimit = 1 << 30

// newMirror creates an empty copy of a segment with a client. It uses a temporary socket in dir.
func newMirror(source unix.Stat_t, dir string) (_ *mirror, err error) {
	if source.Size < segmentHeader || source.Size > segmentLimit {
		return nil, fmt.Errorf("%w: %d bytes", errSegment, source.Size)
	}
	fd, err := unix.MemfdCreate("stat segment copy", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create copy of stats segment: %w", err)
	}
	m := &mirror{source: source, private: os.NewFile(uintptr(fd), "stat segment copy")}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if err := unix.Ftruncate(fd, source.Size); err != nil {
		return nil, fmt.Errorf("size copy of stats segment: %w", err)
	}
	m.mem, err = unix.Mmap(fd, 0, int(source.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map copy of stats segment: %w", err)
	}
	binary.LittleEndian.PutUint64(m.mem, segmentVersion) // the client refuses another version
	if m.client, err = serveTo(m.private, dir); err != nil {
		return nil, err
	}
	return m, nil
}

const segmentVersion = 2

// serveTo makes govpp's client map the file, by a socket that exists until the client has connected.
func serveTo(file *os.File, dir string) (_ *statsclient.StatsClient, err error) {
	dir, err = os.MkdirTemp(dir, "stats-")
	if err != nil {
		return nil, fmt.Errorf("make directory for stats client: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		return nil, fmt.Errorf("listen for stats client: %w", err)
	}
	sent := make(chan error, 1)
	go func() { sent <- sendOnce(l, file) }()
	statsclient.Log.SetOutput(io.Discard) // it logs to standard output; its errors are returned too
	// The client reconnects when a watch reports that its socket's path was removed. Watches report clean paths, so
	// this path never matches, and the mapping stays.
	client := statsclient.NewStatsClient(dir + "/./s")
	err = client.Connect()
	err = errors.Join(err, l.Close(), <-sent)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect stats client: %w", err), client.Disconnect())
	}
	return client, nil
}

func sendOnce(l *net.UnixListener, file *os.File) error {
	conn, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix(nil, unix.UnixRights(int(file.Fd())), nil)
	return errors.Join(err, conn.Close())
}

func (m *mirror) close() {
	if m.client != nil {
		_ = m.client.Disconnect() // unmaps
	}
	if m.mem != nil {
		_ = unix.Munmap(m.mem)
	}
	_ = m.private.Close()
}

// The directory changes for microseconds, when interfaces come and go.
const (
	copyTries = 20
	copyPause = 5 * time.Millisecond
)

// copy copies the segment between two changes of its directory, and checks the copy.
func (m *mirror) copy(ctx context.Context, segment *os.File) error {
	var err error
	for range copyTries {
		if err = m.tryCopy(segment); err == nil {
			return nil
		}
		select {
		case <-time.After(copyPause):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
	return err
}

var errChanging = errors.New("the stats segment's directory is changing")

func (m *mirror) tryCopy(segment *os.File) error {
	before, err := epochOf(segment)
	if err != nil {
		return err
	}
	if err := m.copyData(segment); err != nil {
		return err
	}
	after, err := epochOf(segment)
	if err != nil {
		return err
	}
	if before != after || binary.LittleEndian.Uint64(m.mem[segmentBusy:]) != 0 {
		return errChanging
	}
	// Older versions of VPP have a pointer there, from which govpp infers other types. Now the field is unused.
	binary.LittleEndian.PutUint64(m.mem[segmentErrors:], 0)
	if v := binary.LittleEndian.Uint64(m.mem); v != segmentVersion {
		return fmt.Errorf("%w: layout version %d, want %d", errSegment, v, segmentVersion)
	}
	return checkSegment(m.mem)
}

// epochOf reads the number of changes of the directory. It fails during a change.
func epochOf(segment *os.File) (uint64, error) {
	var header [segmentHeader]byte
	if _, err := segment.ReadAt(header[:], 0); err != nil {
		return 0, fmt.Errorf("read stats segment: %w", err)
	}
	if binary.LittleEndian.Uint64(header[segmentBusy:]) != 0 {
		return 0, errChanging
	}
	return binary.LittleEndian.Uint64(header[segmentEpoch:]), nil
}

// copyData copies the allocated parts of the segment. Most of a segment is a hole, which stays a hole in the copy.
func (m *mirror) copyData(segment *os.File) error {
	fd := int(segment.Fd())
	size := int64(len(m.mem))
	for at := int64(0); at < size; {
		begin, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole up to the end
		}
		end := size
		if err != nil {
			begin = at // hugetlbfs does not support holes
		} else if end, err = unix.Seek(fd, begin, unix.SEEK_HOLE); err != nil {
			end = size
		}
		end = min(end, size)
		if _, err := segment.ReadAt(m.mem[begin:end], begin); err != nil {
			return fmt.Errorf("copy stats segment: %w", err)
		}
		at = end
	}
	return nil
}

func (m *mirror) read(patterns ...string) ([]adapter.StatEntry, error) {
	entries, err := m.client.DumpStats(patterns...)
	if err != nil {
		return nil, fmt.Errorf("read stats: %w", err)
	}
	return entries, nil
}

func openSegment(ctx context.Context, socket string) (*os.File, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to stats socket: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	room := make([]byte, unix.CmsgSpace(4))
	var b [1]byte
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(b[:], room)
	if err != nil && (n == 0 || !errors.Is(err, io.EOF)) { // VPP's message has no bytes, which Go reports as EOF
		return nil, fmt.Errorf("receive stats segment from %s: %w", socket, err)
	}
	messages, err := unix.ParseSocketControlMessage(room[:n])
	var fds []int
	if err == nil && len(messages) == 1 {
		fds, err = unix.ParseUnixRights(&messages[0])
	}
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("%s sent no stats segment", socket)
	}
	return os.NewFile(uintptr(fds[0]), "stat segment"), nil
}
