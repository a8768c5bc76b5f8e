package memif

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/vswitch/confine"
)

// brokerArgument makes this program a broker process.
const brokerArgument = "memif-broker"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == brokerArgument {
		err := ServeBroker(func() {
			if err := confine.Broker(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == hogArgument {
		if err := hog(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == victimArgument {
		if err := victim(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// timeout is the timeout for conditions.
const timeout = time.Minute

// lab is a listener on a socket of its own, with its events.
type lab struct {
	*Listener
	connected    chan *Conn
	disconnected chan error
	refused      chan Refusal
}

func newLab(t *testing.T, o ListenOptions) *lab {
	t.Helper()
	l := &lab{
		connected:    make(chan *Conn, 100),
		disconnected: make(chan error, 100),
		refused:      make(chan Refusal, 20000),
	}
	o.Refused = func(r Refusal) { l.refused <- r }
	var err error
	if l.Listener, err = Listen(filepath.Join(t.TempDir(), "s"), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// add adds an interface to the socket; its connections arrive on l.connected, and the receiver releases them.
func (l *lab) add(t *testing.T, c Config) *Interface {
	t.Helper()
	return l.addWith(t, c, func(*Conn) {})
}

// addReleasing is for tests that do not use the queues.
func (l *lab) addReleasing(t *testing.T, c Config) *Interface {
	t.Helper()
	return l.addWith(t, c, (*Conn).Release)
}

func (l *lab) addWith(t *testing.T, c Config, end func(*Conn)) *Interface {
	t.Helper()
	c.Connected = func(c *Conn) { l.connected <- c }
	c.Disconnected = func(c *Conn, err error) {
		end(c)
		l.disconnected <- err
	}
	i, err := l.Add(c)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func await[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(timeout):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// connectPair makes both ends of a connection, which lasts until the test ends; without a socket the client connects to
// the lab's.
func connectPair(t *testing.T, l *lab, c ClientConfig) (server, client *Conn) {
	t.Helper()
	c.Socket = cmp.Or(c.Socket, l.Path())
	client, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		_ = await(t, client.Gone(), "end of the connection")
		client.Release()
	})
	server = await(t, l.connected, "connection")
	t.Cleanup(server.Release)
	return server, client
}

func reasonFrom(err error) string {
	var d *DisconnectError
	if !errors.As(err, &d) {
		return ""
	}
	return d.Reason
}
