package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/memif"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

const patience = time.Minute

// describe makes the environment of a container with the given interfaces, and returns its socket.
func describe(t *testing.T, interfaces string) (socket string) {
	t.Helper()
	directory := t.TempDir()
	socket = filepath.Join(directory, "memif.sock")
	t.Setenv(memif.SocketVariable, socket)
	t.Setenv(memif.SecretVariable, "")
	description := `{"version":1,"interfaces":[` + interfaces + `]}`
	if err := os.WriteFile(filepath.Join(directory, memif.DescriptionFile), []byte(description), 0o600); err != nil {
		t.Fatal(err)
	}
	return socket
}

// The kernel answers, by the tap, what the node sends to the memif.
func TestKernelAnswersByTheMemif(t *testing.T) {
	netnstest.RequireTap(t)
	socket := describe(t,
		`{"name":"m1","id":1,"role":"client","mode":"ethernet","mac":"02:00:00:00:00:01","mtu":1450,"addresses":["10.5.0.7/24"]}`)
	l, err := memif.Listen(socket, memif.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connected := make(chan *memif.Conn, 1)
	_, err = l.Add(memif.Config{
		ID:           1,
		Connected:    func(c *memif.Conn) { connected <- c },
		Disconnected: func(*memif.Conn, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, nil, io.Discard) }()
	var conn *memif.Conn
	select {
	case conn = <-connected:
	case err := <-done:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("no connection")
	}
	request := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 8, 6}, // who has 10.5.0.7?
		0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 5, 0, 1, 0, 0, 0, 0, 0, 0, 10, 5, 0, 7)
	conn.TxQueues()[0].Send([][]byte{request})
	reply := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 1, 10, 5, 0, 7}
	for deadline := time.Now().Add(patience); ; {
		v := [][]byte{make([]byte, 2048)}
		if conn.RxQueues()[0].Receive(v) == 1 && bytes.HasPrefix(v[0], reply) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no ARP reply")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	conn.Release()
}

func TestRunNeedsAnEthernetMemif(t *testing.T) {
	describe(t, `{"name":"m1","id":1,"role":"client","mode":"ip"}`)
	if err := run(t.Context(), nil, io.Discard); err == nil || !strings.Contains(err.Error(), "no Ethernet memif") {
		t.Errorf("got %v", err)
	}
}
