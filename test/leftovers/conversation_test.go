package leftovers

import (
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// laggard accepts connections and closes each some time after its client; count returns the number of open ones.
type laggard struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex
	count int
}

const lag = 100 * time.Millisecond

func newLaggard(t *testing.T) *laggard {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l := &laggard{listener: listener}
	l.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.serving.Go(func() { l.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.serving.Wait()
	})
	return l
}

func (l *laggard) serve(conn net.Conn) {
	l.add(1)
	defer conn.Close() // last, because others see it at once
	defer l.add(-1)
	_, _ = conn.Write([]byte("welcome"))
	_, _ = conn.Read(make([]byte, 1)) // until the client closes
	<-time.After(lag)
}

func (l *laggard) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count += n
}

func (l *laggard) held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// talk connects, reads the greeting, and closes.
func (l *laggard) talk() error {
	conn, err := net.Dial("unix", l.listener.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 7))
	return err
}

func TestConverseWaitsForItsPeerOnly(t *testing.T) {
	l := newLaggard(t)
	if err := l.talk(); err != nil { // its server side is still open when the conversation begins
		t.Fatal(err)
	}
	half := func() error {
		<-time.After(lag / 2)
		return l.talk()
	}
	if err := converse(t.Context(), l.listener.Addr().String(), half); err != nil {
		t.Fatal(err)
	}
	if n := l.held(); n != 0 {
		t.Errorf("the server has %d connections after the conversation", n)
	}
}
