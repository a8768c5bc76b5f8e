package memif

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// noteKind is the first field of a note.
type noteKind uint32

const (
	noteListen       noteKind = 1 + iota // to the process, with the listening socket
	noteUnlisten                         // to the process: close it, with the clients that wait to be accepted
	noteResume                           // to the process, with a relay and the socket of an established connection
	noteDispose                          // to the process, with a client's socket: close it
	noteClient                           // from the process, with a relay and the client's socket
	noteClosed                           // from the process: the client's socket is empty, and closed there
	noteUnlistened                       // from the process: the listening socket is closed there
	noteListenSplice                     // to the process, with the listening socket of a Splice
	noteDial                             // from the process: a client of a Splice needs its server
	noteServer                           // to the process, with a socket that is connected to the server; without: it does not listen
	noteSpliced                          // from the process: client and server of a Splice are connected
	noteParted                           // from the process: they are no longer
	noteEarly                            // from the process: a client of a Splice sent a message before INIT, and was refused
)

// note is a message between a Broker and its process.
type note struct {
	kind     noteKind
	listener uint32
	client   uint64
	pending  uint32 // of noteListen: MaxPending

	from, to endpoint // of noteServer: as what the client comes, and as what the server expects it
}

// endpoint is an interface on a socket.
type endpoint struct {
	id     uint32
	secret secretField
}

const (
	endpointSize = 4 + secretSize
	noteSize     = 20 + 2*endpointSize
)

func (n note) encode() []byte {
	b := make([]byte, noteSize)
	binary.LittleEndian.PutUint32(b, uint32(n.kind))
	binary.LittleEndian.PutUint32(b[4:], n.listener)
	binary.LittleEndian.PutUint64(b[8:], n.client)
	binary.LittleEndian.PutUint32(b[16:], n.pending)
	n.from.encode(b[20:])
	n.to.encode(b[20+endpointSize:])
	return b
}

func (e endpoint) encode(b []byte) {
	binary.LittleEndian.PutUint32(b, e.id)
	copy(b[4:endpointSize], e.secret[:])
}

func decodeEndpoint(b []byte) endpoint {
	return endpoint{id: binary.LittleEndian.Uint32(b), secret: secretFieldOf(b[4:endpointSize])}
}

func decodeNote(b []byte) note {
	return note{
		kind:     noteKind(binary.LittleEndian.Uint32(b)),
		listener: binary.LittleEndian.Uint32(b[4:]),
		client:   binary.LittleEndian.Uint64(b[8:]),
		pending:  binary.LittleEndian.Uint32(b[16:]),
		from:     decodeEndpoint(b[20:]),
		to:       decodeEndpoint(b[20+endpointSize:]),
	}
}

// channelTimeout bounds how long a note waits for the other process to read.
const channelTimeout = 2 * time.Second

var errNote = errors.New("malformed note")

// sendNote passes a note with descriptors, which stay the caller's.
func sendNote(channel *net.UnixConn, n note, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := channel.SetWriteDeadline(time.Now().Add(channelTimeout)); err != nil {
		return fmt.Errorf("send note: %w", err)
	}
	if _, _, err := channel.WriteMsgUnix(n.encode(), rights, nil); err != nil {
		return fmt.Errorf("send note: %w", err)
	}
	return nil
}

// receiveNote waits for a note. Its descriptors are the caller's.
func receiveNote(channel *net.UnixConn) (note, []int, error) {
	buf, oob := make([]byte, noteSize+1), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := channel.ReadMsgUnix(buf, oob)
	fds := descriptors(oob[:oobn])
	if err == nil && n != noteSize {
		err = errNote
	}
	if err != nil {
		closeAll(fds)
		return note{}, nil, fmt.Errorf("receive note: %w", err)
	}
	return decodeNote(buf), fds, nil
}

// Sizes of a relay's own messages, which differ from memif messages.
var (
	// relayGone follows the last message of a client that hung up.
	relayGone = make([]byte, 1)
	// relayMalformed stands for a message of another size, or with more than one descriptor.
	relayMalformed = make([]byte, 2)
	// relayEstablished means that the client is no longer pending.
	relayEstablished = make([]byte, 3)
)

// socketPair makes two connected sockets that keep the borders of messages.
func socketPair() (own *net.UnixConn, other int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("make socket pair: %w", err)
	}
	own, err = socketOf(fds[0])
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, -1, err
	}
	return own, fds[1], nil
}

// socketOf takes a descriptor over.
func socketOf(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "memif")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("use socket: %w", err)
	}
	socket, is := conn.(*net.UnixConn)
	if !is {
		return nil, errors.Join(errors.New("use socket: not a Unix socket"), conn.Close())
	}
	return socket, nil
}
