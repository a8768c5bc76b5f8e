package agent

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/weftnet/weft/k8s/k8stest"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// follower is the stream of weftctl events -f.
type follower struct {
	grpc.ServerStream
	ctx context.Context
	got chan uint64
}

func (f *follower) Context() context.Context { return f.ctx }

func (f *follower) Send(r *weftv1.EventRecord) error {
	f.got <- r.Seq
	return nil
}

// The first event after those that were shown at once was left out.
func TestFollowingEventsOmitsNoEvent(t *testing.T) {
	o, _ := outsiders(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{ctx: ctx, got: make(chan uint64)}
	ended := make(chan error)
	go func() { ended <- o.Events(&weftv1.EventsRequest{Follow: true}, f) }()
	next := func() uint64 {
		select {
		case seq := <-f.got:
			return seq
		case <-time.After(k8stest.Patience):
			t.Fatal("no event is shown")
			return 0
		}
	}
	last := next()
	for range 3 {
		o.configured(t, "lab", fineKey+": {'on': linux.veth/x, name: net/a, value: '0'}\n")
		if seq := next(); seq != last+1 {
			t.Errorf("event %d is shown after event %d", seq, last)
		}
		last++
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
