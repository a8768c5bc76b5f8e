package vpp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// frameHeader is VPP's msgbuf_t; of it only the length of the message means something.
	frameHeader = 16
	// minMessage is a message id and a context.
	minMessage = 6
	// maxMessage bounds what a garbled length can cost; VPP's longest message is its table of messages, 82 KB.
	maxMessage = 4 << 20
)

var errFrame = errors.New("message length out of range")

// readFrame reads one message.
func readFrame(r *bufio.Reader) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[8:])
	if n < minMessage || n > maxMessage {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("message of %d bytes: %w", n, err)
	}
	return data, nil
}

// appendFrame adds a message with its header.
func appendFrame(to, data []byte) []byte {
	var header [frameHeader]byte
	binary.BigEndian.PutUint32(header[8:], uint32(len(data)))
	return append(append(to, header[:]...), data...)
}
