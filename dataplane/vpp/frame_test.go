package vpp

import (
	"bufio"
	"bytes"
	"testing"
)

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(nil, []byte("message")))
	f.Add(appendFrame(nil, nil))
	f.Add(make([]byte, frameHeader))
	f.Add(bytes.Repeat([]byte{0xff}, 2*frameHeader))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bufio.NewReader(bytes.NewReader(stream))
		for {
			data, err := readFrame(r)
			if err != nil {
				return
			}
			if len(data) < minMessage || len(data) > len(stream) {
				t.Fatalf("a message of %d bytes in a stream of %d", len(data), len(stream))
			}
		}
	})
}

func TestFramesAreReadAsWritten(t *testing.T) {
	var stream []byte
	messages := [][]byte{[]byte("first message"), bytes.Repeat([]byte{7}, 100_000), []byte("last message")}
	for _, m := range messages {
		stream = appendFrame(stream, m)
	}
	r := bufio.NewReader(bytes.NewReader(stream))
	for i, want := range messages {
		if got, err := readFrame(r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("message %d: %d bytes, %v", i, len(got), err)
		}
	}
}
