package recovery

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// connected is a dataplane with a connection.
type connected struct{ connection *southbound.Connection }

func (c connected) Connection() *southbound.Connection { return c.connection }
func (c connected) Ping(context.Context) error         { return nil }

func containerKey(container string) pod.Key {
	return pod.Key{Network: "weft", ContainerID: container, IfName: "eth0"}
}

// replay is a replayer of two attachments, each with one object in the dataplane.
type replay struct {
	*Replayer

	kind    kvschedulertest.KindOf[kvschedulertest.Thing]
	version int
}

func newReplay(t *testing.T) *replay {
	t.Helper()
	s := kvscheduler.New(kvscheduler.Config{})
	kind, err := kvschedulertest.Register(s, kvschedulertest.New().Descriptor("vpp.interface", "vpp"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	pods := podmanager.New(podmanager.Config{})
	pods.Restore([]*pod.Attachment{{Key: containerKey("a")}, {Key: containerKey("b")}})
	wiring := &attach.Pods{}
	wiring.SetWithheld(nil)
	conditions := health.New("", quiet)
	return &replay{kind: kind, Replayer: &Replayer{Config: Config{
		Scheduler: s, Pods: pods, Wiring: wiring, Health: conditions, Log: quiet,
		Quarantine: NewQuarantine(&eventlooptest.Saver{}, conditions, quiet),
		Objects:    func(a *pod.Attachment) []string { return []string{"vpp.interface/" + a.Key.ContainerID} },
	}}}
}

// connect replays both attachments over a new connection.
func (r *replay) connect(t *testing.T) *southbound.Connection {
	t.Helper()
	conn := &southbound.Connection{Ended: make(chan struct{})}
	r.Dataplane = connected{conn}
	r.begin(conn)
	r.version++
	var set []kvscheduler.Object
	for _, container := range []string{"a", "b"} {
		set = append(set, r.kind.Put(container, kvschedulertest.Thing{Version: r.version}))
	}
	if _, err := r.Scheduler.Commit(t.Context(), kvscheduler.Txn{Source: "test", Set: set}); err != nil {
		t.Fatal(err)
	}
	r.ended = time.Now()
	return conn
}

// crash ends a connection some time after its replay, and has the replayer attribute that.
func (r *replay) crash(t *testing.T, conn *southbound.Connection, after time.Duration) {
	t.Helper()
	conn.LostAt = r.ended.Add(after)
	close(conn.Ended)
	r.attributeCrash(t.Context())
}

// A packet or a timer may kill the dataplane soon after a replay. Once is chance; if it happens again, each replayed
// attachment is suspect.
func TestCrashesInARowSoonAfterReplaysMakeSuspects(t *testing.T) {
	const (
		soon = settling / 2
		late = settling + time.Second
	)
	for name, tt := range map[string]struct {
		crashes []time.Duration
		want    []pod.Key
	}{
		"one": {crashes: []time.Duration{soon}},
		"two in a row": {
			crashes: []time.Duration{soon, soon},
			want:    []pod.Key{containerKey("a"), containerKey("b")},
		},
		"two, and one between": {crashes: []time.Duration{soon, late, soon}},
		"two long after":       {crashes: []time.Duration{late, late}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplay(t)
				for _, after := range tt.crashes {
					r.crash(t, r.connect(t), after)
				}
				if got := r.Quarantine.Keys(); !slices.Equal(got, tt.want) {
					t.Errorf("suspects %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// Only if crashes came late a suspect that survived its replay may still be the culprit.
func TestASuspectIsWatchedIfCrashesCameLate(t *testing.T) {
	for crashes, want := range []time.Duration{0, 0, settling} {
		synctest.Test(t, func(t *testing.T) {
			r := newReplay(t)
			for range crashes {
				r.crash(t, r.connect(t), settling/2)
			}
			r.Quarantine.put(t.Context(), Suspicion{Key: containerKey("a"), State: stateSuspect})
			r.Quarantine.drop(containerKey("b"))
			r.connect(t)
			began := time.Now()
			if err := r.replaySuspects(t.Context()); err != nil {
				t.Error(err)
			}
			if watched := time.Since(began); watched != want || len(r.Quarantine.Keys()) > 0 {
				t.Errorf("after %d crashes: watched for %s, want %s; left %v", crashes, watched, want,
					r.Quarantine.Keys())
			}
		})
	}
}

func TestDriftIsNotCheckedBeforeAReplayNorDuringIt(t *testing.T) {
	replayed := &southbound.Connection{Ended: make(chan struct{})}
	lost := &southbound.Connection{Ended: make(chan struct{})}
	close(lost.Ended)
	for name, tt := range map[string]struct {
		current, replayed *southbound.Connection
		isReplaying, want bool
	}{
		"before the first replay":       {current: replayed},
		"a connection that is lost":     {current: lost, replayed: lost},
		"a new one, not replayed yet":   {current: &southbound.Connection{}, replayed: replayed},
		"during a replay":               {current: replayed, replayed: replayed, isReplaying: true},
		"after the connection's replay": {current: replayed, replayed: replayed, want: true},
	} {
		r := &Replayer{Config: Config{Dataplane: connected{tt.current}}, conn: tt.replayed}
		if tt.isReplaying {
			r.mu.Lock()
		}
		called := false
		if got := r.Unless(func() { called = true }); got != tt.want || called != tt.want {
			t.Errorf("%s: returned %t, called %t, want %t", name, got, called, tt.want)
		}
	}
}
