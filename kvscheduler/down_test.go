package kvscheduler_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// downBackend keeps nothing, and can lose its peer.
type downBackend struct{ down *atomic.Bool }

type intItem = kvscheduler.Item[int, int]

func (b downBackend) do(batch []intItem) {
	for i := range batch {
		if b.down.Load() {
			batch[i].Err = kvscheduler.Refused(kvscheduler.ErrDown)
		}
	}
}

func (b downBackend) Create(_ context.Context, batch []intItem) { b.do(batch) }
func (b downBackend) Update(_ context.Context, batch []intItem) { b.do(batch) }
func (b downBackend) Delete(_ context.Context, batch []intItem) { b.do(batch) }

func (b downBackend) Dump(context.Context, kvscheduler.View) iter.Seq2[kvscheduler.Actual[int, int], error] {
	return func(func(kvscheduler.Actual[int, int], error) bool) {}
}

// withDown starts a scheduler with the kinds x and y, whose backend is down, and two objects of each that wait for it.
func withDown(t *testing.T, change func(*kvscheduler.Config)) (s *kvscheduler.Scheduler, down *atomic.Bool) {
	t.Helper()
	down = new(atomic.Bool)
	cfg := kvscheduler.Limited(kvscheduler.Limits{NoJitter: true})
	if change != nil {
		change(&cfg)
	}
	s = kvscheduler.New(cfg)
	var set []kvscheduler.Object
	for _, kind := range []string{"x", "y"} {
		k, err := kvschedulertest.Register(s, kvscheduler.Descriptor[int, int]{
			Name: kind, Lane: kind, Equal: func(a, b int) bool { return a == b }, Backend: downBackend{down},
		})
		must(t, err)
		set = append(set, k.Put("1", 1), k.Put("2", 1))
	}
	runScheduler(t, s)
	down.Store(true)
	if _, err := s.Commit(t.Context(), kvscheduler.Txn{Set: set}); !errors.Is(err, kvscheduler.ErrDown) {
		t.Errorf("commit: %v", err)
	}
	return s, down
}

func phaseOf(s *kvscheduler.Scheduler, object string) kvscheduler.Phase {
	st, _ := s.View().Status(key(object))
	return st.Phase
}

func TestABackendThatIsDownIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s, down := withDown(t, func(c *kvscheduler.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		if n := strings.Count(log.String(), "msg="); n != 2 {
			t.Errorf("%d lines in the log, want one for each lane: %s", n, log.String())
		}
		began := time.Now()
		<-time.After(time.Second)
		down.Store(false)
		must(t, kvschedulertest.Wait(t.Context(), s, []ref{key("x/1"), key("y/1"), key("x/2"), key("y/2")}))
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the lanes were probed after %s, want 20 times the first delay of a retry", took)
		}
	})
}

func TestAResyncReopensTheLanesOfItsKinds(t *testing.T) {
	for name, tt := range map[string]struct {
		opt    kvscheduler.ResyncOpt
		reopen bool
		want   map[string]kvscheduler.Phase
	}{
		"all kinds": {
			kvscheduler.ResyncOpt{}, true,
			map[string]kvscheduler.Phase{"x/1": kvscheduler.InSync, "y/1": kvscheduler.InSync},
		},
		"one kind": {
			kvscheduler.ResyncOpt{Kinds: []kvscheduler.Kind{"x"}}, true,
			map[string]kvscheduler.Phase{"x/1": kvscheduler.InSync, "y/1": kvscheduler.Failed},
		},
		"not reopened": {
			kvscheduler.ResyncOpt{}, false,
			map[string]kvscheduler.Phase{"x/1": kvscheduler.Failed, "y/1": kvscheduler.Failed},
		},
		"only a dry run": {
			kvscheduler.ResyncOpt{DryRun: true}, true,
			map[string]kvscheduler.Phase{"x/1": kvscheduler.Failed, "y/1": kvscheduler.Failed},
		},
		"an unknown kind": {
			kvscheduler.ResyncOpt{Kinds: []kvscheduler.Kind{"z"}}, true,
			map[string]kvscheduler.Phase{"x/1": kvscheduler.Failed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, down := withDown(t, nil)
				down.Store(false)
				tt.opt.Reopen = func() bool { return tt.reopen }
				_, err := s.Resync(t.Context(), tt.opt)
				if (err != nil) != errors.Is(err, kvscheduler.ErrUnknownKind) {
					t.Error(err)
				}
				synctest.Wait()
				for object, want := range tt.want {
					if got := phaseOf(s, object); got != want {
						t.Errorf("%s is %s, want %s", object, got, want)
					}
				}
			})
		})
	}
}
