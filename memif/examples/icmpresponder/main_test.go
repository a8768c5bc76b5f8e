package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/memif"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHelp(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"--help"}, &out); !errors.Is(err, flag.ErrHelp) ||
		!strings.Contains(out.String(), "-interfaces") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// transcript is the output of run.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *transcript) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *transcript) awaits(t *testing.T, text string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		o.mu.Lock()
		got := o.text.String()
		o.mu.Unlock()
		if strings.Contains(got, text) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%q is not in %q", text, got)
		}
	}
}

func TestRunConnectsAnswersAndPrintsFailures(t *testing.T) {
	directory := t.TempDir()
	socket := filepath.Join(directory, "memif.sock")
	t.Setenv(memif.SocketVariable, socket)
	t.Setenv(memif.SecretVariable, "open sesame")
	description := `{"version":1,"interfaces":[{"name":"m1","id":1,"role":"client","mode":"ethernet",
		"mac":"02:00:00:00:00:01","addresses":["10.5.0.7/24"]}]}`
	if err := os.WriteFile(filepath.Join(directory, memif.DescriptionFile), []byte(description), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out transcript
	done := make(chan error, 1)
	go func() { done <- run(ctx, nil, &out) }()
	out.awaits(t, "m1: not connected")

	listener, err := memif.Listen(socket, memif.ListenOptions{Name: "node"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	refusing, err := listener.Add(memif.Config{ID: 1, Secret: "other"})
	if err != nil {
		t.Fatal(err)
	}
	out.awaits(t, "incorrect secret")
	if err := refusing.Close(); err != nil {
		t.Fatal(err)
	}
	connected := make(chan *memif.Conn, 1)
	served, err := listener.Add(memif.Config{
		ID: 1, Secret: "open sesame", Name: "memif1/1",
		Connected: func(c *memif.Conn) { connected <- c }, Disconnected: func(*memif.Conn, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	conn := <-connected
	out.awaits(t, "m1: connected to memif1/1 of node")
	request := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 8, 6}, // who has 10.5.0.7?
		0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 5, 0, 1, 0, 0, 0, 0, 0, 0, 10, 5, 0, 7)
	conn.TxQueues()[0].Send([][]byte{request})
	reply := [][]byte{make([]byte, 2048)}
	for deadline := time.Now().Add(time.Minute); conn.RxQueues()[0].Receive(reply) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no reply")
		}
	}
	if len(reply[0]) < 28 || !bytes.Equal(reply[0][6:12], []byte{2, 0, 0, 0, 0, 1}) || reply[0][21] != 2 {
		t.Errorf("reply %x", reply[0])
	}
	if err := served.Close(); err != nil {
		t.Fatal(err)
	}
	conn.Release()
	out.awaits(t, "m1: disconnected: peer disconnected: interface deleted")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
