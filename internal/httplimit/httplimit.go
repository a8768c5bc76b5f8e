// Package httplimit bounds the open connections of an HTTP server.
package httplimit

import (
	"net"
	"net/http"
	"sync"
)

// Connections returns a function for http.Server.ConnState that bounds the open connections. A new connection is always
// served: above the bound one of the client with the most connections is closed instead, so a client that keeps
// connections open takes them from itself. Of the connections of that client one without a request is closed before one
// with a request, and of these the one whose state changed first. A client is an IP address; all clients of a unix
// socket are one.
func Connections(most int) func(net.Conn, http.ConnState) {
	t := &table{most: most, open: make(map[net.Conn]*connection)}
	return t.changed
}

// table has the open connections of a server.
type table struct {
	most int

	mu      sync.Mutex
	changes uint64
	open    map[net.Conn]*connection
}

type connection struct {
	client   string
	isActive bool   // it has a request
	changed  uint64 // number of the last change of its state
}

// changed is called by the server for each change of a connection's state.
func (t *table) changed(conn net.Conn, state http.ConnState) {
	if victim := t.note(conn, state); victim != nil {
		_ = victim.Close() // its goroutine ends with an error
	}
}

// note notes a change, and returns the connection to close; nil: none.
func (t *table) note(conn net.Conn, state http.ConnState) (victim net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes++
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(t.open, conn)
		return nil
	case http.StateNew:
		t.open[conn] = &connection{client: clientOf(conn), changed: t.changes}
	default:
		if c := t.open[conn]; c != nil { // else it was a victim
			c.isActive = state == http.StateActive
			c.changed = t.changes
		}
		return nil
	}
	if len(t.open) <= t.most {
		return nil
	}
	victim = t.victimLocked(conn)
	delete(t.open, victim)
	return victim
}

// victimLocked chooses the connection to close. It is not the newest one.
func (t *table) victimLocked(newest net.Conn) (victim net.Conn) {
	counts := make(map[string]int)
	for _, c := range t.open {
		counts[c.client]++
	}
	var of *connection
	for conn, c := range t.open {
		if conn != newest && (of == nil || c.goesBefore(of, counts)) {
			victim = conn
			of = c
		}
	}
	return victim
}

// goesBefore reports whether a connection is closed rather than another one.
func (c *connection) goesBefore(other *connection, counts map[string]int) bool {
	mine := counts[c.client]
	others := counts[other.client]
	if mine != others {
		return mine > others
	}
	if c.isActive != other.isActive {
		return other.isActive
	}
	return c.changed < other.changed
}

// clientOf returns the IP address of a client, or "".
func clientOf(conn net.Conn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return ""
	}
	return host
}
