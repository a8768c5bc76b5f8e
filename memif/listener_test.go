package memif

import (
	"path/filepath"
	"testing"
	"time"
)

// A client that is served before its interface is added is refused, or is offered rings of one slot.
func TestNoClientIsServedBeforeTheFirstInterface(t *testing.T) {
	for name, broker := range map[string]func(*testing.T) *Broker{
		"in the process": func(*testing.T) *Broker { return nil },
		"by a broker":    newBroker,
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Listen(filepath.Join(t.TempDir(), "s"), ListenOptions{Broker: broker(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			early := newLiar(t, l.Path())
			_ = early.socket.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if m, _, err := early.receive(); err == nil {
				t.Fatalf("the client is served: message %d", m.kind())
			}
			if _, err := l.Add(hostileConfig); err != nil {
				t.Fatal(err)
			}
			_ = early.socket.SetReadDeadline(time.Now().Add(timeout))
			m, _, err := early.receive()
			if err != nil || m.kind() != helloMessage {
				t.Fatalf("no hello: %v", err)
			}
			if slots := 1 << decodeHello(m).maxRingLog2; slots != hostileConfig.RingSize {
				t.Errorf("rings of %d slots are offered, want %d", slots, hostileConfig.RingSize)
			}
		})
	}
}

func TestAListenerWithoutInterfacesIsClosed(t *testing.T) {
	for name, end := range map[string]func(*Listener){
		"Close":   func(l *Listener) { _ = l.Close() },
		"Release": (*Listener).Release,
	} {
		l, err := Listen(filepath.Join(t.TempDir(), "s"), ListenOptions{Broker: newBroker(t)})
		if err != nil {
			t.Fatal(err)
		}
		end(l)
		if d := l.Descriptor(); d != -1 {
			t.Errorf("%s: the socket's descriptor %d stays open", name, d)
		}
	}
}
