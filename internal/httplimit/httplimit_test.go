package httplimit

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// conn is a connection that only has a client.
type conn struct {
	net.Conn

	name, client string
	closed       *[]string
}

func (c *conn) RemoteAddr() net.Addr {
	if c.client == "" {
		return &net.UnixAddr{Name: "@", Net: "unix"}
	}
	return &net.TCPAddr{IP: net.ParseIP(c.client), Port: 1}
}

func (c *conn) Close() error {
	*c.closed = append(*c.closed, c.name)
	return nil
}

func TestTheConnectionThatIsClosed(t *testing.T) {
	for name, tt := range map[string]struct {
		changes []string // NAME CLIENT STATE
		want    []string
	}{
		"at the bound none": {
			[]string{"a 10.0.0.1 new", "b 10.0.0.1 new", "c 10.0.0.1 new"}, nil,
		},
		"the oldest one of a client": {
			[]string{"a 10.0.0.1 new", "b 10.0.0.1 new", "c 10.0.0.1 new", "d 10.0.0.1 new"}, []string{"a"},
		},
		"of the client with the most": {
			[]string{"a 10.0.0.2 new", "b 10.0.0.1 new", "c 10.0.0.1 new", "d 10.0.0.2 new", "e 10.0.0.1 new"},
			[]string{"a", "b"},
		},
		"a new client is served": {
			[]string{"a 10.0.0.1 new", "b 10.0.0.1 new", "c 10.0.0.1 new", "d 10.0.0.2 new"}, []string{"a"},
		},
		"one without a request first": {
			[]string{"a 10.0.0.1 new", "b 10.0.0.1 new", "c 10.0.0.1 new", "a 10.0.0.1 active", "d 10.0.0.1 new"},
			[]string{"b"},
		},
		"one whose request has ended": {
			[]string{
				"a 10.0.0.1 new", "a 10.0.0.1 active", "b 10.0.0.1 new", "b 10.0.0.1 active", "c 10.0.0.1 new",
				"c 10.0.0.1 active", "b 10.0.0.1 idle", "d 10.0.0.1 new",
			},
			[]string{"b"},
		},
		"one with a request if all have one": {
			[]string{
				"a 10.0.0.1 new", "a 10.0.0.1 active", "b 10.0.0.1 new", "b 10.0.0.1 active", "c 10.0.0.1 new",
				"c 10.0.0.1 active", "d 10.0.0.1 new",
			},
			[]string{"a"},
		},
		"those that were used last stay": {
			[]string{
				"a 10.0.0.1 new", "b 10.0.0.1 new", "c 10.0.0.1 new", "a 10.0.0.1 active", "a 10.0.0.1 idle",
				"d 10.0.0.1 new", "e 10.0.0.1 new",
			},
			[]string{"b", "c"},
		},
		"one that is closed makes room": {
			[]string{"a 10.0.0.1 new", "b 10.0.0.1 new", "c 10.0.0.1 new", "b 10.0.0.1 closed", "d 10.0.0.1 new"}, nil,
		},
		"one that a handler took over makes room": {
			[]string{
				"a 10.0.0.1 new", "b 10.0.0.1 new", "c 10.0.0.1 new", "b 10.0.0.1 active", "b 10.0.0.1 hijacked",
				"d 10.0.0.1 new",
			},
			nil,
		},
		"one that was closed is not closed again": {
			[]string{
				"a 10.0.0.1 new", "b 10.0.0.1 new", "c 10.0.0.1 new", "d 10.0.0.1 new", "a 10.0.0.1 active",
				"a 10.0.0.1 closed", "e 10.0.0.1 new",
			},
			[]string{"a", "b"},
		},
		"clients of a unix socket": {
			[]string{"a - new", "b - new", "c - new", "d - new"}, []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var closed []string
			changed := Connections(3)
			conns := make(map[string]*conn)
			for _, change := range tt.changes {
				f := strings.Fields(change)
				if conns[f[0]] == nil {
					conns[f[0]] = &conn{name: f[0], client: strings.TrimPrefix(f[1], "-"), closed: &closed}
				}
				changed(conns[f[0]], stateNamed(f[2]))
			}
			if !slices.Equal(closed, tt.want) {
				t.Errorf("closed %v, want %v", closed, tt.want)
			}
		})
	}
}

func stateNamed(name string) http.ConnState {
	for _, s := range []http.ConnState{
		http.StateNew, http.StateActive, http.StateIdle, http.StateHijacked, http.StateClosed,
	} {
		if s.String() == name {
			return s
		}
	}
	panic(name)
}

// Whatever clients do, open connections are bounded, the newest one is served, and a client with a fair share loses
// none.
func TestConnectionsAreBoundedAndFair(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const (
			most    = 8
			clients = 3
		)
		var closed []string
		changed := Connections(most)
		open := make(map[string]*conn)
		for step := range rapid.IntRange(1, 100).Draw(r, "steps") {
			names := make([]string, 0, len(open))
			for name := range open {
				names = append(names, name)
			}
			slices.Sort(names)
			if len(names) > 0 && rapid.Bool().Draw(r, "an open one changes") {
				c := open[rapid.SampledFrom(names).Draw(r, "which")]
				state := rapid.SampledFrom([]http.ConnState{http.StateActive, http.StateIdle, http.StateClosed}).Draw(r,
					"state")
				if changed(c, state); state == http.StateClosed {
					delete(open, c.name)
				}
				continue
			}
			c := &conn{
				name:   fmt.Sprint(step),
				client: fmt.Sprintf("10.0.0.%d", rapid.IntRange(1, clients).Draw(r, "client")),
				closed: &closed,
			}
			closed = nil
			open[c.name] = c
			changed(c, http.StateNew)
			for _, name := range closed {
				victim := open[name]
				delete(open, name)
				if victim == nil || victim == c {
					r.Fatalf("closed %s, after %s came", name, c.name)
				}
				if left := countOf(open, victim.client); left+1 <= most/clients {
					r.Fatalf("client %s has only %d connections and loses one", victim.client, left+1)
				}
			}
			if len(open) > most {
				r.Fatalf("%d connections are open", len(open))
			}
		}
	})
}

func countOf(open map[string]*conn, client string) (n int) {
	for _, c := range open {
		if c.client == client {
			n++
		}
	}
	return n
}
