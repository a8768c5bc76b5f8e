package vswitch

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
)

// reconnect is the interval at which a standby tries to connect to the active dataplane.
const reconnect = 200 * time.Millisecond

// inheritance is a dataplane that was handed over, with the descriptor of the lock file.
type inheritance struct {
	*dataplane
	lock int
}

// awaitOrInherit takes the lock when its holder ends. It returns the dataplane that the holder handed over together
// with the lock; nil: the lock was released.
func (l *lock) awaitOrInherit(ctx context.Context, c Config, broker *memif.Broker) (*dataplane, error) {
	if c.NoHandover {
		return nil, l.await(ctx, c.Name, c.APISocket)
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	inherited := make(chan *inheritance, 1)
	go func() {
		defer stop() // after a handover
		inherited <- inherit(waiting, c, broker)
	}()
	err := l.await(waiting, c.Name, c.APISocket)
	stop()
	got := <-inherited
	if got == nil {
		return nil, err
	}
	if err := l.adopt(got.lock, c.Name); err != nil {
		return nil, errors.Join(err, got.engine.Abandon())
	}
	got.engine.Resume()
	return got.dataplane, nil
}

// adopt takes over a locked descriptor, and keeps the number of its own one; see Run.
func (l *lock) adopt(descriptor int, name string) error {
	defer unix.Close(descriptor)
	if err := unix.Dup3(descriptor, int(l.file.Fd()), unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("take over lock: %w", err)
	}
	l.held = true
	if err := l.write(name); err != nil {
		return fmt.Errorf("write lock file: %w", err)
	}
	return nil
}

// inherit waits until the active dataplane has handed over. It returns nil if ctx ends before that.
func inherit(ctx context.Context, c Config, broker *memif.Broker) *inheritance {
	tick := time.NewTicker(reconnect)
	defer tick.Stop()
	last := ""
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "unixpacket", HandoverPath(c.APISocket))
		if err == nil {
			var got *inheritance
			if got, err = inheritOver(ctx, conn, c, broker); err == nil {
				return got
			}
		}
		if err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			c.Log.Info("no handover from the active dataplane: its end will be a restart", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// inheritOver does the standby's part of a handover and closes the connection.
func inheritOver(ctx context.Context, over net.Conn, c Config, broker *memif.Broker) (*inheritance, error) {
	defer over.Close()
	defer context.AfterFunc(ctx, func() { _ = over.Close() })()
	conn, is := over.(*net.UnixConn)
	if !is {
		return nil, errMessage
	}
	if err := checkPeer(conn); err != nil {
		return nil, err
	}
	if _, err := conn.Write(greeting); err != nil {
		return nil, err
	}
	if err := expect(conn, greeting); err != nil {
		return nil, fmt.Errorf("greet: %w", err)
	}
	// Before the handover: packets do not wait for it.
	d, err := newDataplane(c, broker)
	if err != nil {
		return nil, err
	}
	c.Log.Info("standby is ready for a handover", "socket", c.APISocket)
	file, err := d.receive(conn)
	if err != nil {
		return nil, errors.Join(err, d.engine.Abandon())
	}
	return &inheritance{d, file}, nil
}

// agree sends ready and returns the lock file of commit.
func agree(conn *net.UnixConn) (int, error) {
	if _, err := conn.Write(ready); err != nil {
		return -1, err
	}
	message, descriptors, err := receiveDescriptors(conn)
	if err == nil && (!bytes.Equal(message, commit) || len(descriptors) != 1) {
		err = fmt.Errorf("%w: %q with %d descriptors, not commit", errMessage, message, len(descriptors))
	}
	if err != nil {
		closeAll(descriptors)
		return -1, err
	}
	return descriptors[0], nil
}

// receive receives a parcel with its descriptors, continues with them without forwarding yet, and returns the lock file
// of commit.
func (d *dataplane) receive(conn *net.UnixConn) (lockFile int, err error) {
	p, err := receiveParcel(conn)
	if err != nil {
		return -1, err
	}
	passed, err := receivePassed(conn, p)
	defer closePassed(passed)
	if err != nil {
		return -1, err
	}
	state, err := model.DecodeState(p.State)
	if err != nil {
		return -1, err
	}
	if err := d.model.Restore(state, passed); err != nil {
		return -1, err
	}
	return agree(conn)
}

func receiveParcel(conn *net.UnixConn) (*parcel, error) {
	header, err := receiveMessage(conn)
	if err != nil {
		return nil, err
	}
	if len(header) != 8 || binary.BigEndian.Uint64(header) > maxParcel {
		return nil, fmt.Errorf("%w: %q, not the size of a parcel", errMessage, header)
	}
	var body bytes.Buffer
	for size := int(binary.BigEndian.Uint64(header)); body.Len() < size; {
		piece, err := receiveMessage(conn)
		if err != nil {
			return nil, err
		}
		if len(piece) == 0 || len(piece) > size-body.Len() {
			return nil, fmt.Errorf("%w: a piece of %d bytes after %d of %d", errMessage, len(piece), body.Len(), size)
		}
		body.Write(piece)
	}
	return decodeParcel(body.Bytes())
}

func decodeParcel(b []byte) (*parcel, error) {
	var p parcel
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&p); err != nil {
		return nil, fmt.Errorf("decode parcel: %w", err)
	}
	total := len(p.Sockets)
	for _, one := range p.Ports {
		if one.Descriptors < 1 || one.Descriptors > maxDescriptors {
			return nil, fmt.Errorf("%w: interface %d with %d descriptors", errMessage, one.Interface, one.Descriptors)
		}
		if total += one.Descriptors; total > maxDescriptors {
			return nil, fmt.Errorf("%w: more than %d descriptors", errMessage, maxDescriptors)
		}
	}
	return &p, nil
}

// receivePassed receives the descriptors of ports and sockets. The caller owns them also after an error.
func receivePassed(conn *net.UnixConn, p *parcel) (*model.Passed, error) {
	all := &model.Passed{Ports: map[uint32]forward.OpenPort{}}
	var unassigned []int
	defer func() { closeAll(unassigned) }()
	take := func(n int) ([]int, error) {
		for len(unassigned) < n {
			_, more, err := receiveDescriptors(conn)
			if err == nil && len(more) == 0 {
				err = fmt.Errorf("%w: no descriptors", errMessage)
			}
			if err != nil {
				return nil, err
			}
			unassigned = append(unassigned, more...)
		}
		taken := unassigned[:n:n]
		unassigned = unassigned[n:]
		return taken, nil
	}
	for _, one := range p.Ports {
		descriptors, err := take(one.Descriptors)
		if err != nil {
			return all, err
		}
		closeAll(all.Ports[one.Interface].Descriptors) // there is none, unless the other process is wrong
		all.Ports[one.Interface] = forward.OpenPort{
			Interface:   one.Interface,
			Descriptors: descriptors,
			Memif:       one.Memif,
		}
	}
	for _, path := range p.Sockets {
		descriptors, err := take(1)
		if err != nil {
			return all, err
		}
		all.Sockets = append(all.Sockets, forward.OpenSocket{Path: path, Descriptor: descriptors[0]})
	}
	if len(unassigned) > 0 {
		return all, fmt.Errorf("%w: %d descriptors too many", errMessage, len(unassigned))
	}
	return all, nil
}

// closePassed closes what was received and not used.
func closePassed(p *model.Passed) {
	for _, left := range p.Ports {
		closeAll(left.Descriptors)
	}
	for _, left := range p.Sockets {
		closeAll([]int{left.Descriptor})
	}
}

// receiveDescriptors receives a short message with descriptors.
func receiveDescriptors(conn *net.UnixConn) (message []byte, descriptors []int, err error) {
	b := make([]byte, 16)
	control := make([]byte, unix.CmsgSpace(4*(descriptorsSent+13)))
	n, controlled, _, _, err := conn.ReadMsgUnix(b, control)
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlled])
	if err != nil {
		return nil, nil, err
	}
	for _, m := range messages {
		passed, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(descriptors)
			return nil, nil, err
		}
		descriptors = append(descriptors, passed...)
	}
	return b[:n], descriptors, nil
}

func closeAll(descriptors []int) {
	for _, fd := range descriptors {
		_ = unix.Close(fd)
	}
}
