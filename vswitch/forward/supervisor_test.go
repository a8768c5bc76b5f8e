package forward

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

var errBroken = errors.New("broken")

func TestFailedPortIsReopenedWithBackoff(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	refuse := false
	open := func() (vectorPort, error) {
		if refuse {
			return nil, errBroken
		}
		return newMemoryPort()
	}
	if err := e.supervisor.add(4, open); err != nil {
		t.Fatal(err)
	}
	k := e.supervisor
	failPort(k, 4, &refuse)
	if ev := <-e.Events(); ev.Kind != PortDown || ev.Interface != 4 || !errors.Is(ev.Err, errBroken) {
		t.Fatalf("event %+v", ev)
	}
	now := time.Now().Add(time.Minute)
	for _, pause := range []int{2, 4, 8, 16, 30, 30} {
		due := k.inspect(now)
		if due.Sub(now) != time.Duration(pause)*time.Second {
			t.Fatalf("paused for %v, want %d s", due.Sub(now), pause)
		}
		now = due
	}
	k.locked(func() int { refuse = false; return 0 })
	if due := k.inspect(now); !due.IsZero() {
		t.Errorf("reopened, and next attempt in %v", due.Sub(now))
	}
	if ev := <-e.Events(); ev.Kind != PortUp || ev.Interface != 4 {
		t.Fatalf("event %+v", ev)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// failPort fails a port as a worker does; from then on it cannot be opened.
func failPort(k *supervisor, index uint32, refuse *bool) {
	a := k.engine.ports.Load().at(index)
	k.locked(func() int { *refuse = true; return 0 })
	a.fail(errBroken)
}

// locked runs f while no port is opened.
func (k *supervisor) locked(f func() int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return f()
}

func TestFailedOpenLeavesNoPort(t *testing.T) {
	b := newBench(t)
	if err := b.engine.supervisor.add(5, func() (vectorPort, error) { return nil, errBroken }); !errors.Is(err,
		errBroken) {
		t.Errorf("open: %v", err)
	}
	if err := b.engine.ClosePort(5); !errors.Is(err, ErrNoPort) {
		t.Errorf("close: %v", err)
	}
}

// slowPort is a port that closes only together with others, as in the kernel.
type slowPort struct {
	vectorPort
	closing *sync.WaitGroup
	err     error
}

func (p *slowPort) Close() error {
	p.closing.Done()
	p.closing.Wait()
	return errors.Join(p.err, p.vectorPort.Close())
}

func TestPortsAreClosedAtTheSameTimeWhenTheEngineStops(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	var closing sync.WaitGroup
	const ports = 100
	closing.Add(ports)
	for index := range uint32(ports) {
		open := func() (vectorPort, error) {
			p, err := newMemoryPort()
			slow := &slowPort{vectorPort: p, closing: &closing}
			if index == 7 {
				slow.err = errBroken
			}
			return slow, err
		}
		if err := e.supervisor.add(index, open); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, errBroken) {
			t.Errorf("error of a port is missing: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("ports are closed one after the other")
	}
}
