package api

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

func TestReadFrameReturnsWholeFrameOrError(t *testing.T) {
	header := func(n uint32) []byte {
		b := make([]byte, frameHeader)
		binary.BigEndian.PutUint32(b[8:], n)
		return b
	}
	for _, c := range []struct {
		name  string
		input []byte
		want  error
	}{
		{"end of stream", nil, io.EOF},
		{"half a header", header(6)[:9], io.ErrUnexpectedEOF},
		{"no data", header(6), io.ErrUnexpectedEOF},
		{"half the data", append(header(6), 1, 2, 3), io.ErrUnexpectedEOF},
		{"shorter than any message", append(header(5), 1, 2, 3, 4, 5), errFrameLength},
		{"longer than any message", header(maxMessage + 1), errFrameLength},
		{"maximum length", header(^uint32(0)), errFrameLength},
		{"whole", append(header(6), 1, 2, 3, 4, 5, 6), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := readFrame(bufio.NewReader(bytes.NewReader(c.input)), nil); !errors.Is(err, c.want) {
				t.Fatalf("want %v, got %v", c.want, err)
			}
		})
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(nil, []byte("sockclnt")))
	f.Add(append(appendFrame(nil, []byte("one two three")), appendFrame(nil, []byte("four five"))...))
	f.Add(make([]byte, 40))
	f.Fuzz(func(t *testing.T, input []byte) {
		r := bufio.NewReader(bytes.NewReader(input))
		var decoded []byte
		for {
			data, err := readFrame(r, nil)
			if err != nil {
				break
			}
			if len(data) < minMessage || len(data) > maxMessage {
				t.Fatalf("message of %d bytes", len(data))
			}
			decoded = appendFrame(decoded, data)
		}
		if len(decoded) > len(input) {
			t.Fatalf("%d bytes of messages from %d bytes", len(decoded), len(input))
		}
		for at := 0; at < len(decoded); at += frameHeader + int(binary.BigEndian.Uint32(decoded[at+8:])) {
			data := decoded[at+frameHeader:][:binary.BigEndian.Uint32(decoded[at+8:])]
			if !bytes.Equal(data, input[at+frameHeader:][:len(data)]) {
				t.Fatal("the message differs from the one sent")
			}
		}
	})
}
