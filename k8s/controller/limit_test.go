package controller

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// kubelet restarts a replica whose probes get no answer. A client that opens connections and keeps them must not cause
// that.
func TestAClientThatKeepsConnectionsIsBounded(t *testing.T) {
	l := newLab(t)
	c := l.replica("a", nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.start("replica", c.Run)
	l.start("health", func(ctx context.Context) error { return c.ServeHealth(ctx, listener) })
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	var kept []net.Conn
	for range 3 * maxConnections {
		conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		kept = append(kept, conn)
	}
	reply, err := http.Get("http://" + listener.Addr().String() + "/livez")
	if err != nil || reply.StatusCode != http.StatusOK {
		t.Fatalf("alive: %v, %v", reply, err)
	}
	_ = reply.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	open := 0
	for _, conn := range kept {
		if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			open++
		}
	}
	if open > maxConnections {
		t.Errorf("the client keeps %d connections, want at most %d", open, maxConnections)
	}
}
