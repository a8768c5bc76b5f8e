package web

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/weftnet/weft/agent/health"
)

// keep opens a connection from a loopback address and keeps it open until the test ends.
func keep(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// request sends a request on an open connection, and reads the reply.
func request(conn net.Conn) (code int, err error) {
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0, err
	}
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, reply.Body)
	return reply.StatusCode, errors.Join(err, reply.Body.Close())
}

// isOpen reports whether the server keeps a connection on which it sends nothing open.
func isOpen(t *testing.T, conn net.Conn) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// A client opens connections and keeps them. Probes and scrapes by other clients, and from its own address, are
// answered.
func TestAClientThatKeepsConnectionsKeepsNobodyOut(t *testing.T) {
	address := serveOnAnyPort(t, Routes(http.NotFoundHandler(), health.New("", slog.New(slog.DiscardHandler))))
	scraper := keep(t, "127.0.0.3", address)
	if code, err := request(scraper); code != http.StatusServiceUnavailable || err != nil {
		t.Fatalf("the scraper: %d, %v", code, err)
	}
	var flood []net.Conn
	for range 3 * maxConnections {
		flood = append(flood, keep(t, "127.0.0.2", address))
	}
	if code, err := request(scraper); code != http.StatusServiceUnavailable || err != nil {
		t.Errorf("the open connection of another client: %d, %v", code, err)
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		if code, err := request(keep(t, from, address)); code != http.StatusServiceUnavailable || err != nil {
			t.Errorf("a new connection from %s: %d, %v", from, code, err)
		}
	}
	open := 0
	for _, conn := range flood {
		if isOpen(t, conn) {
			open++
		}
	}
	if open > maxConnections {
		t.Errorf("the client keeps %d connections, want at most %d", open, maxConnections)
	}
}
