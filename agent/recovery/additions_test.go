package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/pod"
)

// admission is a loop with the handlers of a quarantine, over a dataplane that dies during commits.
type admission struct {
	*testing.T
	*eventloop.Loop
	quarantine *Quarantine
	saver      *eventlooptest.Saver // outlives the agent
	conn       *southbound.Connection
	tries      int  // commits
	mended     bool // no pod kills the dataplane any more
	stop       func()
}

func newAdmission(t *testing.T) *admission {
	t.Helper()
	a := &admission{T: t, saver: &eventlooptest.Saver{}, conn: &southbound.Connection{Ended: make(chan struct{})}}
	a.start()
	t.Cleanup(func() { a.stop() })
	return a
}

// start starts an agent with what the last one kept.
func (a *admission) start() {
	a.Helper()
	a.quarantine = NewQuarantine(a.saver, health.New("", quiet), quiet)
	a.quarantine.Restore(a.kept(), nil)
	a.quarantine.Attribute(func() *southbound.Connection { return a.conn })
	committer := &eventlooptest.Committer{}
	committer.Before(func(_ context.Context, c eventloop.Change) error {
		if len(c.Set) == 0 {
			return nil
		}
		a.tries++
		switch {
		case strings.Contains(c.Label, "broken"):
			return errors.New("refused")
		case strings.Contains(c.Label, "deadly") && !a.mended:
			a.die()
			return errors.New("the dataplane is down")
		}
		return nil
	})
	a.Loop = eventloop.New(eventloop.Config{Committer: committer, Saver: a.saver, Log: quiet})
	a.quarantine.Register(a.Loop)
	eventloop.On(a.Loop, "network", func(_ context.Context, ev *pod.AddPod, txn *eventloop.Txn) error {
		txn.Put("interface/"+ev.Key.String(), "value")
		return nil
	})
	a.stop = eventlooptest.Ready(a.T, a.Loop)
}

// restart ends the agent, whose memory is lost, and starts another one.
func (a *admission) restart() {
	a.Helper()
	a.stop()
	a.start()
}

// kept returns what is durable, as the state file has it.
func (a *admission) kept() (kept []Suspicion) {
	a.Helper()
	for key, value := range a.saver.Bucket(statefile.BucketQuarantine) {
		raw, err := json.Marshal(value)
		var s Suspicion
		if err == nil {
			err = json.Unmarshal(raw, &s)
		}
		if err != nil {
			a.Fatalf("%s: %v", key, err)
		}
		kept = append(kept, s)
	}
	return kept
}

// die ends the connection. The agent notices it later than the ADD fails.
func (a *admission) die() {
	conn := a.conn
	conn.LostAt = time.Now()
	close(conn.Ended)
}

// reconnect connects another dataplane, after the agent has replayed it.
func (a *admission) reconnect() {
	a.conn = &southbound.Connection{Ended: make(chan struct{})}
	a.quarantine.attribute(a.Context())
}

// add adds a pod with a new sandbox, as a runtime does after a failure.
func (a *admission) add(name string) error {
	ev := &pod.AddPod{Request: pod.Request{
		ID:    pod.ID{Namespace: "lab", Name: name, UID: "uid"},
		Netns: pod.Netns{Path: "/run/netns/x", Inode: 1},
	}}
	ev.Key = pod.Key{Network: "weft", ContainerID: fmt.Sprintf("%s%d", name, time.Now().UnixNano()), IfName: "eth0"}
	_, err := a.Do(a.Context(), ev)
	<-time.After(time.Second)
	return err
}

func (a *admission) isRefused(name string) bool {
	a.Helper()
	before := a.tries
	err := a.add(name)
	isRefused := err != nil && strings.Contains(err.Error(), "weftctl quarantine release lab/"+name)
	if isRefused && a.tries != before {
		a.Error("a refused pod reaches the dataplane")
	}
	return isRefused
}

// kill makes the dataplane die in ADDs of a pod.
func (a *admission) kill(name string, times int) {
	a.Helper()
	for range times {
		if a.isRefused(name) {
			a.Fatalf("%s is refused too early", name)
		}
		a.reconnect()
	}
}

func TestAPodWhoseADDKillsTheDataplaneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t)
		a.kill("deadly", fatalAdditions)
		if !a.isRefused("deadly") || a.conn.IsLost() {
			t.Fatal("the fourth ADD kills the dataplane, too")
		}
		if err := a.add("other"); err != nil {
			t.Errorf("another pod: %v", err)
		}
		list := a.quarantine.Listed()
		if len(list) != 1 || list[0].State != stateRefused || list[0].Pod.Name != "deadly" ||
			list[0].Crashes != fatalAdditions {
			t.Errorf("listed are %+v", list)
		}
		<-time.After(refusal)
		a.kill("deadly", 1) // one try: the dataplane may be another one
		if !a.isRefused("deadly") {
			t.Error("after the pause it kills the dataplane more than once")
		}
		r := &Replayer{Config: Config{Quarantine: a.quarantine}}
		if n, err := r.Release(t.Context(), "lab/deadly"); n != 1 || err != nil {
			t.Errorf("release: %d, %v", n, err)
		}
		a.kill("deadly", fatalAdditions)
	})
}

func TestCrashesThatArePureChanceRefuseNoPod(t *testing.T) {
	for name, between := range map[string]func(a *admission){
		"the pod was added in between": func(a *admission) {
			a.quarantine.additions.forget(pod.ID{Namespace: "lab", Name: "deadly", UID: "uid"})
		},
		"an ADD failed for another reason":        func(a *admission) { a.fails() },
		"an ADD came while nothing was connected": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAdmission(t)
				a.kill("deadly", fatalAdditions-1)
				if between != nil {
					between(a)
					a.kill("deadly", fatalAdditions-1)
					return
				}
				a.die()
				for range 2 * fatalAdditions {
					if a.isRefused("deadly") {
						t.Error("an ADD without a dataplane counts")
					}
				}
			})
		})
	}
}

// fails makes an ADD of the pod fail while the dataplane lives.
func (a *admission) fails() {
	txn := &pod.AddPod{Request: pod.Request{
		ID:    pod.ID{Namespace: "lab", Name: "deadly", UID: "uid"},
		Netns: pod.Netns{Path: "/run/netns/x", Inode: 1},
	}}
	txn.Key = pod.Key{Network: "broken", ContainerID: "broken", IfName: "eth0"}
	_, _ = a.Do(a.Context(), txn)
	<-time.After(time.Second)
}

func TestRememberedPodsAreBounded(t *testing.T) {
	a := newAdditions()
	for n := range 2 * mostAdditions {
		a.failed(pod.ID{Namespace: "lab", Name: fmt.Sprint(n)}, addition{ended: time.Unix(int64(n), 0)})
	}
	if _, has := a.of[pod.ID{Namespace: "lab", Name: fmt.Sprint(mostAdditions)}]; len(a.of) != mostAdditions || !has {
		t.Errorf("%d pods are remembered, the first of the newest ones: %t", len(a.of), has)
	}
}

func TestAnAddressOfAnotherNodeIsNotReleased(t *testing.T) {
	q := NewQuarantine(&eventlooptest.Saver{}, health.New("", quiet), quiet)
	key := pod.Key{Network: "weft", ContainerID: "c", IfName: "eth0"}
	q.put(t.Context(), Suspicion{
		Key:    key,
		Pod:    pod.ID{Namespace: "lab", Name: "a"},
		State:  stateQuarantined,
		Taken:  true,
		Reason: "node n2 owns its address; delete the pod",
	})
	r := &Replayer{Config: Config{Quarantine: q}}
	if n, err := r.Release(t.Context(), "lab/a"); n != 0 || err == nil ||
		!strings.Contains(err.Error(), "delete the pod") {
		t.Errorf("released %d, %v", n, err)
	}
	if _, still := q.find(key); !still {
		t.Error("it is not quarantined any more")
	}
}

func TestACrashOutsideOfATryIsNotAttributedToIt(t *testing.T) {
	id := pod.ID{Namespace: "lab", Name: "a", UID: "uid"}
	began := time.Unix(1000, 0)
	ended := began.Add(time.Second)
	for name, tt := range map[string]struct {
		lostAt  time.Time
		crashes int
	}{
		"just before it":    {began.Add(-time.Millisecond), 0},
		"at its begin":      {began, 1},
		"soon after it":     {ended.Add(settling - time.Millisecond), 1},
		"too long after it": {ended.Add(settling), 0},
	} {
		conn := &southbound.Connection{Ended: make(chan struct{}), LostAt: tt.lostAt}
		close(conn.Ended)
		a := newAdditions()
		a.failed(id, addition{conn: conn, began: began, ended: ended})
		got := 0
		if known := a.attributeLocked(id); known != nil {
			got = known.crashes
		}
		if got != tt.crashes {
			t.Errorf("%s: %d crashes are attributed, want %d", name, got, tt.crashes)
		}
	}
}

// kubelet repeats the ADD, also with an agent that was restarted. The pod must not kill the dataplane again, which
// serves the other pods.
func TestARefusedPodIsRefusedAfterARestartUntilTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t)
		a.kill("deadly", fatalAdditions)
		before := a.quarantine.Listed()
		for range 2 {
			a.restart()
			if !a.isRefused("deadly") || a.conn.IsLost() {
				t.Fatal("the ADD after a restart kills the dataplane")
			}
			if err := a.add("other"); err != nil {
				t.Errorf("another pod: %v", err)
			}
		}
		after := a.quarantine.Listed()
		if len(before) != 1 || len(after) != 1 || !after[0].Since.Equal(before[0].Since) ||
			after[0].Crashes != fatalAdditions {
			t.Errorf("listed are %+v, before %+v", after, before)
		}
		<-time.After(refusal)
		a.mended = true
		if err := a.add("deadly"); err != nil {
			t.Errorf("after the time is over: %v", err)
		}
		if kept := a.kept(); len(kept) > 0 {
			t.Errorf("after a successful ADD the state file has %+v", kept)
		}
		a.mended = false
		a.restart()
		a.kill("deadly", fatalAdditions) // it counts from the beginning
	})
}

func TestARefusedPodIsReleasedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t)
		a.kill("deadly", fatalAdditions)
		a.restart()
		r := &Replayer{Config: Config{Quarantine: a.quarantine}}
		if n, err := r.Release(t.Context(), "lab/deadly"); n != 1 || err != nil {
			t.Errorf("release: %d, %v", n, err)
		}
		a.restart() // the release is durable, too
		a.kill("deadly", fatalAdditions)
		if !a.isRefused("deadly") {
			t.Error("after the release it kills the dataplane more than three times")
		}
	})
}

func TestCrashesAreCountedOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t)
		for range fatalAdditions {
			a.kill("deadly", 1)
			a.restart()
		}
		if !a.isRefused("deadly") {
			t.Error("restarts of the agent begin again")
		}
		a.restart()
		for _, s := range a.kept() {
			if s.State != stateRefused || s.Pod.UID != "uid" {
				t.Errorf("durable is %+v", s)
			}
		}
	})
}

func TestARefusalThatCouldNotBeSavedIsSavedWithTheNextADD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t)
		a.saver.Before(func(_ context.Context, saved []eventloop.Saved) error {
			if slices.ContainsFunc(saved, func(v eventloop.Saved) bool {
				return v.Bucket == statefile.BucketQuarantine
			}) {
				return errors.New("no space left on device")
			}
			return nil
		})
		a.kill("deadly", fatalAdditions)
		if kept := a.kept(); len(kept) > 0 || !a.isRefused("deadly") {
			t.Fatalf("on a full disk the state file has %+v", kept)
		}
		a.saver.Before(nil)
		if err := a.add("other"); err != nil {
			t.Fatal(err)
		}
		a.restart()
		if !a.isRefused("deadly") {
			t.Error("the refusal is not durable")
		}
	})
}

func TestWhatIsKnownOfAPodThatIsLongGoneIsNotRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t)
		a.kill("deadly", fatalAdditions)
		<-time.After(staleAddition)
		a.restart()
		if err := a.add("other"); err != nil {
			t.Fatal(err)
		}
		if kept := a.kept(); len(kept) > 0 || len(a.quarantine.additions.of) > 0 {
			t.Errorf("kept %+v", kept)
		}
	})
}

// The agent may end before the pod is added again.
func TestAReplayAttributesTheCrashDurably(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t)
		r := newReplay(t)
		r.Quarantine = a.quarantine
		r.Loop = a.Loop
		if err := a.add("deadly"); err == nil || !a.conn.IsLost() {
			t.Fatalf("the dataplane lives: %v", err)
		}
		a.conn = &southbound.Connection{Ended: make(chan struct{})}
		r.Dataplane = connected{a.conn}
		if err := r.Replay(t.Context(), a.conn); err != nil {
			t.Fatal(err)
		}
		kept := a.kept()
		if len(kept) != 1 || kept[0].State != stateCounted || kept[0].Crashes != 1 || kept[0].Pod.Name != "deadly" {
			t.Errorf("durable is %+v", kept)
		}
	})
}

// kubelet may repeat the ADD before the agent has noticed that the connection is lost.
func TestACrashThatIsNoticedAfterTheNextADDIsAttributed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := pod.ID{Namespace: "lab", Name: "a", UID: "uid"}
		a := newAdditions()
		conn := &southbound.Connection{Ended: make(chan struct{})}
		a.connection = func() *southbound.Connection { return conn }
		try := func() {
			began := time.Now()
			a.failed(id, addition{conn: conn, began: began, ended: began.Add(time.Millisecond)})
			<-time.After(settling / 4)
		}
		try()
		conn.LostAt = time.Now().Add(-settling / 8) // before the next try
		if known := a.attributeLocked(id); known == nil || known.crashes != 0 {
			t.Errorf("before the loss is noticed: %+v", known)
		}
		try()
		close(conn.Ended)
		if known := a.attributeLocked(id); known == nil || known.crashes != 1 {
			t.Errorf("after the loss was noticed: %+v", known)
		}
		try()
		conn = &southbound.Connection{Ended: make(chan struct{})}
		try()
		<-time.After(settling)
		if known := a.attributeLocked(id); known != nil {
			t.Errorf("a failure without a crash counts: %+v", known)
		}
	})
}

// weftctl plan pod decides as an ADD does, and changes nothing.
func TestAPlanOfAnADDChangesNoCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t)
		a.kill("deadly", fatalAdditions-1)
		ev := &pod.AddPod{Request: pod.Request{
			ID:    pod.ID{Namespace: "lab", Name: "deadly", UID: "uid"},
			Netns: pod.Netns{Path: "/run/netns/x", Inode: 1},
		}}
		ev.Key = pod.Key{Network: "weft", ContainerID: "planned", IfName: "eth0"}
		if _, err := a.Plan(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		<-time.After(settling)
		a.kill("deadly", 1)
		if !a.isRefused("deadly") {
			t.Error("the plan reset the count")
		}
		ev.Key.ContainerID = "planned2"
		if _, err := a.Plan(t.Context(), ev); err == nil || !strings.Contains(err.Error(), "refused since") {
			t.Errorf("the plan of a refused pod: %v", err)
		}
	})
}
