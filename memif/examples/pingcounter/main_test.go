package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/memif"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// describe makes the environment of a container with these interfaces, and returns the path of the socket.
func describe(t *testing.T, interfaces string) string {
	t.Helper()
	directory := t.TempDir()
	socket := filepath.Join(directory, "memif.sock")
	t.Setenv(memif.SocketVariable, socket)
	t.Setenv(memif.SecretVariable, "open sesame")
	if err := os.WriteFile(filepath.Join(directory, memif.DescriptionFile),
		[]byte(`{"version":1,"interfaces":[`+interfaces+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return socket
}

func TestContainerWithoutMemifIsAnError(t *testing.T) {
	describe(t, "")
	if err := run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "no memif") {
		t.Error(err)
	}
}

func TestRequestIsAnsweredAndCounted(t *testing.T) {
	socket := describe(t,
		`{"name":"m1","id":1,"role":"client","mode":"ethernet","mac":"02:00:00:00:00:01","addresses":["10.5.0.7/24"]}`)
	listener, err := memif.Listen(socket, memif.ListenOptions{Name: "node"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	connected := make(chan *memif.Conn, 1)
	_, err = listener.Add(memif.Config{
		ID: 1, Secret: "open sesame", Name: "memif1/1",
		Connected: func(c *memif.Conn) { connected <- c }, Disconnected: func(*memif.Conn, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reading, writing := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, writing)
		writing.Close()
	}()
	conn := <-connected
	defer conn.Release()
	lines := bufio.NewScanner(reading)
	mustPrint := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("printed %q, want %q", lines.Text(), want)
		}
	}
	mustPrint("m1: connected, addresses [10.5.0.7/24]")
	other := bytes.Repeat([]byte{0xff}, 42)                                               // no request
	request := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 8, 6}, // who has 10.5.0.7?
		0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 5, 0, 1, 0, 0, 0, 0, 0, 0, 10, 5, 0, 7)
	conn.TxQueues()[0].Send([][]byte{other, request, request})
	mustPrint("m1: reply 1, 42 bytes")
	mustPrint("m1: reply 2, 42 bytes")
	replies := [][]byte{make([]byte, 2048), make([]byte, 2048), make([]byte, 2048)}
	if n := conn.RxQueues()[0].Receive(replies); n != 2 || replies[1][21] != 2 ||
		!bytes.Equal(replies[1][6:12], []byte{2, 0, 0, 0, 0, 1}) {
		t.Errorf("%d replies, the last is %x", n, replies[1])
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
