package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/memif"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// node serves two memifs to a bridge.
func node(t *testing.T) (ends [2]*memif.Conn) {
	t.Helper()
	directory := t.TempDir()
	socket := filepath.Join(directory, "memif.sock")
	t.Setenv(memif.SocketVariable, socket)
	t.Setenv(memif.SecretVariable, "")
	description := `{"version":1,"interfaces":[{"name":"m1","id":1,"role":"client","mode":"ethernet"},
		{"name":"m2","id":2,"role":"client","mode":"ethernet"},{"name":"m3","id":3,"role":"client","mode":"ip"}]}`
	if err := os.WriteFile(filepath.Join(directory, memif.DescriptionFile), []byte(description), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := memif.Listen(socket, memif.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan *memif.Conn, 2)
	for id := range uint32(2) {
		_, err := l.Add(memif.Config{
			ID: id + 1, Connected: func(c *memif.Conn) { connected <- c }, Disconnected: func(*memif.Conn, error) {},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, nil, new(strings.Builder)) }()
	for range ends {
		select {
		case c := <-connected:
			ends[c.Info().ID-1] = c
		case <-time.After(patience):
			t.Fatal("the bridge does not connect")
		}
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, c := range ends {
			c.Release()
		}
		_ = l.Close()
	})
	return ends
}

func frame(to, from byte, payload string) []byte {
	f := append([]byte{2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5}, payload...)
	return f
}

func awaitFrame(t *testing.T, c *memif.Conn) []byte {
	t.Helper()
	v := [][]byte{make([]byte, 2048)}
	for deadline := time.Now().Add(patience); c.RxQueues()[0].Receive(v) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no frame")
		}
	}
	return v[0]
}

func TestFramesAreForwardedUnlessTheDestinationIsLocal(t *testing.T) {
	ends := node(t)
	for i, f := range [][]byte{frame(2, 1, "unknown goes out"), frame(1, 2, "and comes back")} {
		ends[i].TxQueues()[0].Send([][]byte{f})
		if got := awaitFrame(t, ends[1-i]); !bytes.Equal(got, f) {
			t.Errorf("%q came as %q", f, got)
		}
	}
	last := frame(2, 3, "for the other side")
	ends[0].TxQueues()[0].Send([][]byte{frame(1, 3, "for this side"), last})
	if got := awaitFrame(t, ends[1]); !bytes.Equal(got, last) {
		t.Errorf("%q crossed", got)
	}
}

func TestTheAddressTableIsLimited(t *testing.T) {
	s := segment{where: make(map[address]int)}
	station := func(i int) address { return address{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)} }
	for i := range 3 * maxAddresses {
		s.learn(station(i), 0)
	}
	s.learn(address{1}, 0)
	if _, multicast := s.where[address{1}]; len(s.where) != maxAddresses || multicast {
		t.Errorf("%d addresses, multicast %v", len(s.where), multicast)
	}
	last := station(3*maxAddresses - 1)
	if s.learn(last, 1); len(s.where) != maxAddresses || s.where[last] != 1 {
		t.Errorf("a known address clears the full table: %d addresses", len(s.where))
	}
	if s.learn(address{4}, 0); len(s.where) != 1 {
		t.Errorf("%d addresses after one more than fit", len(s.where))
	}
}

func TestABridgeNeedsTwoInterfaces(t *testing.T) {
	t.Setenv(memif.SocketVariable, filepath.Join(t.TempDir(), "memif.sock"))
	description := filepath.Join(filepath.Dir(os.Getenv(memif.SocketVariable)), memif.DescriptionFile)
	if err := os.WriteFile(description, []byte(`{"version":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), nil, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), "need two") {
		t.Errorf("said %v", err)
	}
}
