package forward

import (
	"context"
	"runtime"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// sourcePort always has frames to receive, and discards transmitted ones.
type sourcePort struct {
	*memoryPort
	n byte
}

func (p *sourcePort) Receive(v []*frame.Buffer) (int, error) {
	runtime.Gosched() // busy workers would starve control
	v = v[:min(len(v), 8)]
	for _, b := range v {
		p.n++
		raw := between(host(p.n), host(p.n/3))
		if p.n%5 == 0 {
			raw = packet(host(p.n), bviMAC, "10.2.7.7")
		}
		b.SetLen(copy(b.Room(), raw))
	}
	return len(v), nil
}

func (p *sourcePort) Transmit(v []*frame.Buffer) (int, error) { return len(v), nil }

// TestBridgesChangeUnderTraffic is for the race detector: two workers forward while control adds, changes and deletes
// bridge domains.
func TestBridgesChangeUnderTraffic(t *testing.T) {
	e, err := New(Config{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	for index := uint32(1); index <= 4; index++ {
		p, err := newMemoryPort()
		if err != nil {
			t.Fatal(err)
		}
		if err := e.supervisor.add(index, func() (vectorPort, error) {
			return &sourcePort{memoryPort: p}, nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := e.SetInterface(index, Interface{Up: true, MAC: portMAC}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.SetInterface(bviIndex, Interface{Up: true, MAC: bviMAC, IP6Enabled: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	seen := 0
	for n := range 50 {
		if err := e.SetBridge(routed(1, 1, 2, uint32(3+n%2))); err != nil {
			t.Error(err)
		}
		e.Publish()
		e.FlushMACs(MACFilter{Bridge: 1, Interface: uint32(1 + n%4)})
		seen += len(e.LearnedMACs(0))
		e.ForgetMAC(1, host(byte(n)), NoInterface)
		if n%10 == 9 {
			e.DelBridge(1)
			if list := e.LearnedMACs(0); len(list) != 0 {
				t.Errorf("MACs after the flush: %v", list)
			}
		}
	}
	cancel()
	if err := <-ended; err != nil || seen == 0 {
		t.Errorf("%v; %d MACs seen", err, seen)
	}
}
