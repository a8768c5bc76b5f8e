package operations

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// follower is a fake stream of events.
type follower struct {
	grpc.ServerStream
	ctx context.Context
	got chan uint64
}

func (f *follower) Context() context.Context { return f.ctx }

func (f *follower) Send(r *operatorv1.EventRecord) error {
	f.got <- r.Seq
	return nil
}

// Regression test: the first event after the recorded ones was missing.
func TestFollowedEventsAreComplete(t *testing.T) {
	o, _ := newConfigured(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{ctx: ctx, got: make(chan uint64)}
	ended := make(chan error)
	go func() { ended <- o.Events(&operatorv1.EventsRequest{Follow: true}, f) }()
	next := func() uint64 {
		select {
		case seq := <-f.got:
			return seq
		case <-time.After(k8stest.Patience):
			t.Fatal("no event")
			return 0
		}
	}
	last := next()
	for range 3 {
		o.configured(t, "lab", validKey+": {'on': linux.veth/x, name: net/a, value: '0'}\n")
		if seq := next(); seq != last+1 {
			t.Errorf("event %d follows event %d", seq, last)
		}
		last++
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestEventsHonourSinceAndLast(t *testing.T) {
	o, _ := newConfigured(t) // the start of the loop is event 1
	for range 4 {
		o.configured(t, "lab", validKey+": {'on': linux.veth/x, name: net/a, value: '0'}\n")
	}
	for name, tt := range map[string]struct {
		req  *operatorv1.EventsRequest
		want []uint64
	}{
		"all":                             {&operatorv1.EventsRequest{}, []uint64{1, 2, 3, 4, 5}},
		"from the third on":               {&operatorv1.EventsRequest{Since: 3}, []uint64{3, 4, 5}},
		"from the next one on":            {&operatorv1.EventsRequest{Since: 6}, nil},
		"the last two":                    {&operatorv1.EventsRequest{Last: 2}, []uint64{4, 5}},
		"the last five":                   {&operatorv1.EventsRequest{Last: 5}, []uint64{1, 2, 3, 4, 5}},
		"more than there are":             {&operatorv1.EventsRequest{Last: 6}, []uint64{1, 2, 3, 4, 5}},
		"one, from the third on":          {&operatorv1.EventsRequest{Since: 3, Last: 1}, []uint64{5}},
		"at most three, from the last on": {&operatorv1.EventsRequest{Since: 5, Last: 3}, []uint64{5}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &follower{ctx: t.Context(), got: make(chan uint64, 10)}
			if err := o.Events(tt.req, f); err != nil {
				t.Fatal(err)
			}
			close(f.got)
			var got []uint64
			for seq := range f.got {
				got = append(got, seq)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("events %v, expected %v", got, tt.want)
			}
		})
	}
}

func TestTransactionsHonourSinceAndLast(t *testing.T) {
	s, vrfs, _ := kvschedulertest.Markers(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		if _, err := s.Commit(t.Context(), kvscheduler.Txn{
			Source: "weft",
			Set:    []kvscheduler.Object{vrfs.Put(name, "")},
		}); err != nil {
			t.Fatal(err)
		}
	}
	o := New(Config{Scheduler: s})
	for name, tt := range map[string]struct {
		req  *operatorv1.TransactionsRequest
		want []uint64
	}{
		"all":                      {&operatorv1.TransactionsRequest{}, []uint64{1, 2, 3, 4}},
		"from the third on":        {&operatorv1.TransactionsRequest{Since: 3}, []uint64{3, 4}},
		"the last two":             {&operatorv1.TransactionsRequest{Last: 2}, []uint64{3, 4}},
		"the last four":            {&operatorv1.TransactionsRequest{Last: 4}, []uint64{1, 2, 3, 4}},
		"one, from the second on":  {&operatorv1.TransactionsRequest{Since: 2, Last: 1}, []uint64{4}},
		"none beyond the last one": {&operatorv1.TransactionsRequest{Since: 5}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			reply, err := o.Transactions(t.Context(), tt.req)
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for _, txn := range reply.Transactions {
				got = append(got, txn.Seq)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("transactions %v, expected %v", got, tt.want)
			}
		})
	}
}

func TestEventsAreFilteredByPodTimeAndResult(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := eventloop.Record{Seq: 7, Event: "add pod shop/cart eth0 (weft, sandbox c0ffee)", Arrived: at}
	failed := r
	failed.Err = "no such namespace"
	for name, tt := range map[string]struct {
		req    *operatorv1.EventsRequest
		record eventloop.Record
		want   bool
	}{
		"no filter":                   {&operatorv1.EventsRequest{}, r, true},
		"its pod":                     {&operatorv1.EventsRequest{Pod: "shop/cart"}, r, true},
		"a pod with a similar name":   {&operatorv1.EventsRequest{Pod: "shop/car"}, r, false},
		"another pod":                 {&operatorv1.EventsRequest{Pod: "shop/web"}, r, false},
		"from its time on":            {&operatorv1.EventsRequest{After: timestamppb.New(at)}, r, true},
		"from a later time on":        {&operatorv1.EventsRequest{After: timestamppb.New(at.Add(1))}, r, false},
		"before its time":             {&operatorv1.EventsRequest{Before: timestamppb.New(at)}, r, false},
		"before a later time":         {&operatorv1.EventsRequest{Before: timestamppb.New(at.Add(1))}, r, true},
		"up to its number":            {&operatorv1.EventsRequest{Through: 7}, r, true},
		"up to an earlier number":     {&operatorv1.EventsRequest{Through: 6}, r, false},
		"failed ones, one that did":   {&operatorv1.EventsRequest{Failed: true}, failed, true},
		"failed ones, one that isn't": {&operatorv1.EventsRequest{Failed: true}, r, false},
	} {
		of := &concerned{owners: new(owners.Snapshot)}
		if got := of.selects(tt.req, &tt.record); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
