package kvscheduler_test

import (
	"context"
	"slices"
	"testing"

	"github.com/weftnet/weft/kvscheduler"
)

func TestTheLogGoesOnBehindRestoredRecords(t *testing.T) {
	s := kvscheduler.New(kvscheduler.Limited(kvscheduler.Limits{Records: 2}))
	s.Restore([]*kvscheduler.Record{{Seq: 5, Label: "old"}, {Seq: 6, Label: "older run"}, {Seq: 7, Label: "last"}})
	var seqs []uint64
	for r := range s.Log(0) {
		seqs = append(seqs, r.Seq)
	}
	if !slices.Equal(seqs, []uint64{6, 7}) {
		t.Errorf("kept %v", seqs)
	}
	ctx := running(t, s)
	rec, err := s.Commit(ctx, kvscheduler.Txn{Source: "a", Label: "new"})
	if err != nil || rec.Seq != 8 {
		t.Errorf("got record %+v, %v", rec, err)
	}
}

func TestLooksThatFoundNothingAreNotLogged(t *testing.T) {
	s := kvscheduler.New(kvscheduler.Config{})
	ctx := running(t, s)
	for _, o := range []kvscheduler.ResyncOpt{
		{}, {DryRun: true}, {DryRun: true, Event: 3}, {Event: 4, Label: "asked for"},
	} {
		if _, err := s.Resync(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	var labels []string
	for r := range s.Log(0) {
		labels = append(labels, r.Label)
	}
	if !slices.Equal(labels, []string{"asked for"}) {
		t.Errorf("logged %q", labels)
	}
}

// running runs the scheduler until the test ends.
func running(t *testing.T, s *kvscheduler.Scheduler) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return ctx
}
