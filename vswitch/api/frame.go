package api

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A message on the stream is a 16 byte header (VPP's msgbuf_t: a queue pointer, the length of the data
// in network order, a garbage collector's mark; only the length means something here) and the data.
const (
	frameHeader = 16
	// minMessage is the shortest message there is: message id and context.
	minMessage = 6
	// maxMessage bounds what one peer can make us hold; the longest message of use,
	// a route of 255 paths, has 38 KiB.
	maxMessage = 256 << 10
)

var errFrameLength = errors.New("message length out of range")

// readFrame reads one message into buf, which grows as needed, and returns the message's bytes.
// They are valid until the next call. At the end of the stream between two messages the error is io.EOF.
func readFrame(r *bufio.Reader, buf []byte) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return buf, err
	}
	n := binary.BigEndian.Uint32(header[8:])
	if n < minMessage || n > maxMessage {
		return buf, fmt.Errorf("%w: %d", errFrameLength, n)
	}
	if int(n) > cap(buf) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return buf, fmt.Errorf("read message of %d bytes: %w", n, noEOF(err))
	}
	return buf, nil
}

// noEOF says that the end of the stream came where it is a fault.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends data with its header to b.
func appendFrame(b, data []byte) []byte {
	var header [frameHeader]byte
	binary.BigEndian.PutUint32(header[8:], uint32(len(data)))
	return append(append(b, header[:]...), data...)
}
