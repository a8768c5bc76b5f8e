package forward_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/port"
)

func TestTwoWorkersForwardForEachOther(t *testing.T) {
	l := newLabOf(t, 2)
	a := l.pod()
	b := l.pod()
	for range 20 {
		a.wantReply(t, ping{to: b.v4})
		b.wantReply(t, ping{to: a.v6})
		a.wantReply(t, ping{to: gateway4})
	}
	a.transfer(t, b, b.v4, 4<<20)
}

func TestPortsAreAddedAndRemovedUnderTraffic(t *testing.T) {
	l := newLabOf(t, 2)
	a := l.pod()
	b := l.pod()
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _, _ = b.ping(t, ping{to: a.v4, wait: 2 * time.Millisecond})
			}
		}
	}()
	table := forward.TableKey{Family: forward.IP4}
	for i := range 30 {
		if _, err := l.engine.OpenTap(9, port.TapConfig{
			Namespace: a.namespace,
			Name:      "extra",
			Up:        true,
			Queues:    3,
		}); err != nil {
			t.Fatal(err)
		}
		if err := l.engine.SetInterface(9, forward.Interface{Up: true}); err != nil {
			t.Fatal(err)
		}
		to := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 8, 0, byte(i)}), 32)
		if err := l.engine.SetRoute(table, to, forward.Route{Paths: []forward.Path{{Interface: 9}}}); err != nil {
			t.Fatal(err)
		}
		l.engine.Publish()
		l.engine.Trace(b.index, 64)
		l.engine.DelRoute(table, to)
		l.engine.DelInterface(9)
		l.engine.Publish()
		if err := l.engine.ClosePort(9); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
	a.wantReply(t, ping{to: b.v4})
}

func TestStoppedEngineRejectsPorts(t *testing.T) {
	e, end := startEngine(t, 1)
	end()
	if _, err := e.OpenTap(1, port.TapConfig{}); !errors.Is(err, forward.ErrStopped) {
		t.Errorf("open: %v", err)
	}
	if err := e.ClosePort(1); !errors.Is(err, forward.ErrNoPort) {
		t.Errorf("close: %v", err)
	}
	if lines := e.Trace(1, 5); lines != nil {
		t.Errorf("trace: %v", lines)
	}
}
