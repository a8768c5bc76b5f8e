package memif

import (
	"encoding/binary"
	"errors"
	"fmt"

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
	// to the process, with a socket that is connected to the server; without: it does not listen
	noteServer
	noteSpliced // from the process: client and server of a Splice are connected
	noteParted  // from the process: they are no longer
	// from the process: a client of a Splice sent a message before INIT, and was refused
	noteEarly
)

// note is a message between a Broker and its process.
type note struct {
	kind     noteKind
	listener uint32
	client   uint64
	pending  uint32 // of noteListen: MaxPending

	from, to endpoint // of noteServer: the endpoint that the client states, and the one that the server expects
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

var errNote = errors.New("malformed note")

// sendNote passes a note with descriptors, which stay the caller's.
func sendNote(channel *packetSocket, n note, fds ...int) error {
	if err := channel.send(n.encode(), fds...); err != nil {
		return fmt.Errorf("send note: %w", err)
	}
	return nil
}

// receiveNote waits for a note. Its descriptors are the caller's.
func receiveNote(channel *packetSocket) (note, []int, error) {
	buf := make([]byte, noteSize+1)
	oob := make([]byte, unix.CmsgSpace(4*4))
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
