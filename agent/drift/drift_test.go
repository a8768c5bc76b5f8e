package drift

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/kvscheduler"
)

// newIdleMonitor returns a monitor of a scheduler without links. It finds no drift.
func newIdleMonitor(t *testing.T) *Monitor {
	t.Helper()
	s := kvscheduler.New(kvscheduler.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return New(Config{Scheduler: s, Log: slog.New(slog.DiscardHandler), Period: time.Hour, Repairs: true})
}

// A pod can cause any number of notifications.
func TestNotificationsOfOneKindAreKeptOnce(t *testing.T) {
	d := newIdleMonitor(t)
	for range 100_000 {
		d.kernelChanged(linux.Notification{Namespace: "/run/netns/a"})
	}
	if len(d.changes) != 1 || len(d.wake) != 1 {
		t.Errorf("%d changes and %d tokens are kept, want 1 and 1", len(d.changes), len(d.wake))
	}
}

func TestLostNotificationsAreCheckedLessAndLessOften(t *testing.T) {
	d := newIdleMonitor(t)
	var lengths []time.Duration
	for range 3 {
		d.kernelChanged(linux.Notification{Lost: true})
		d.checkDisturbed(t.Context())
		p := d.pauses[everything]
		lengths = append(lengths, p.length)
		d.kernelChanged(linux.Notification{Lost: true})
		d.checkDisturbed(t.Context())
		if again := d.pauses[everything]; again.length != p.length || !again.isQueued {
			t.Errorf("in the pause of %s: another check, or none at its end: %+v", p.length, again)
		}
		d.pauses[everything] = checkPause{until: time.Now(), length: p.length} // it is over
	}
	if lengths[0] != driftPause || lengths[1] != 2*driftPause || lengths[2] != 4*driftPause {
		t.Errorf("pauses %s", lengths)
	}
}

func TestDriftIsNamedByTheObjectThatDrifted(t *testing.T) {
	op := func(ref, verb, why string, old, now any) kvscheduler.OpRecord {
		return kvscheduler.OpRecord{Ref: ref, Verb: verb, Why: why, Old: old, New: now}
	}
	type mtu struct{ MTU int }
	for name, tt := range map[string]struct {
		found []kvscheduler.OpRecord
		want  string
	}{
		"missing": {[]kvscheduler.OpRecord{op("a/1", "create", "drift", nil, mtu{1})}, "a/1 was missing"},
		"missing, with a maker that is made again": {[]kvscheduler.OpRecord{
			op("b/on", "delete", "dep:a/1", mtu{1}, nil), op("m/1", "delete", "recreate", mtu{1}, nil),
			op("m/1", "create", "recreate", nil, mtu{1}),
			op("a/1", "create", "drift", nil, mtu{1}), op("b/on", "create", "dep:a/1", nil, mtu{1}),
		}, "a/1 was missing, with 2 objects that depend on it or drifted too"},
		"updated": {
			[]kvscheduler.OpRecord{op("a/1", "update", "drift", mtu{2}, mtu{1})}, "a/1 was different (MTU is 2, not 1)",
		},
		"recreated": {
			[]kvscheduler.OpRecord{
				op("a/1", "delete", "recreate", mtu{2}, nil), op("a/1", "create", "recreate", nil, mtu{1}),
			},
			"a/1 was different (MTU is 2, not 1)",
		},
		"not desired": {[]kvscheduler.OpRecord{op("a/1", "delete", "drift", mtu{2}, nil)}, "a/1 was not desired"},
	} {
		if got := describeDrift(tt.found, new(owners.Snapshot)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
