package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
)

// act is what a handler does with one of its keys.
type act struct {
	Key    string
	Value  int // 0 deletes
	Saves  bool
	Ending string // "", "error" or "panic", after it acted
}

// script is an event that tells each handler what to do.
type script struct {
	acts       [3]act
	bestEffort bool
	commit     string // "", "refused", "not undone", "panic"
	save       string // "", "refused"
}

func (s *script) String() string   { return fmt.Sprintf("script %+v", *s) }
func (s *script) BestEffort() bool { return s.bestEffort }

func scripts() *rapid.Generator[*script] {
	often := func(t *rapid.T, label string, others ...string) string {
		return rapid.SampledFrom(append([]string{"", "", "", "", "", ""}, others...)).Draw(t, label)
	}
	return rapid.Custom(func(t *rapid.T) *script {
		s := &script{bestEffort: rapid.IntRange(0, 3).Draw(t, "best effort") == 0}
		for i := range s.acts {
			s.acts[i] = act{
				Key:    rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
				Value:  rapid.IntRange(0, 4).Draw(t, "value"),
				Saves:  rapid.Bool().Draw(t, "saves"),
				Ending: often(t, "ending", "error", "panic"),
			}
		}
		s.commit = often(t, "commit", "refused", "not undone", "panic")
		s.save = often(t, "save", "refused")
		if s.bestEffort && s.commit == "refused" {
			s.commit = "not undone" // the test does not wait for the retries
		}
		return s
	})
}

// machine is three handlers with memory, a committer and a saver.
type machine struct {
	*eventloop.Loop
	committer *eventlooptest.Committer
	saver     *eventlooptest.Saver
	memory    [3]map[string]int
	found     []string
}

func newMachine() *machine {
	m := &machine{committer: &eventlooptest.Committer{}, saver: &eventlooptest.Saver{}}
	c := eventloop.Config{
		Committer: m.committer,
		Saver:     m.saver,
		Verify:    true,
		OnVerify:  func(found []string) { m.found = found },
	}
	c.Limit(eventloop.Limits{MinHealing: time.Hour, MaxHealing: time.Hour})
	m.Loop = eventloop.New(c)
	for i := range m.memory {
		m.memory[i] = map[string]int{}
		eventloop.On(m.Loop, fmt.Sprint("handler ", i), func(_ context.Context, s *script, txn *eventloop.Txn) error {
			return m.act(i, s.acts[i], txn)
		})
		m.OnResync(fmt.Sprint("handler ", i), func(_ context.Context, txn *eventloop.Txn) error {
			for key, v := range m.memory[i] {
				txn.Put(fmt.Sprint(i, "/", key), v)
			}
			return nil
		})
	}
	return m
}

func (m *machine) act(i int, a act, txn *eventloop.Txn) error {
	memory := m.memory[i]
	key := fmt.Sprint(i, "/", a.Key)
	before, was := memory[a.Key]
	txn.OnRollback(func() error {
		delete(memory, a.Key)
		if was {
			memory[a.Key] = before
		}
		return nil
	})
	var saved any
	if a.Value == 0 {
		delete(memory, a.Key)
		txn.Delete(key)
	} else {
		memory[a.Key] = a.Value
		saved = a.Value
		txn.Put(key, a.Value)
	}
	if a.Saves {
		txn.Save("values", key, saved)
	}
	switch a.Ending {
	case "error":
		return errBoom
	case "panic":
		panic("handler")
	}
	return nil
}

// settle ends all failures, and has the loop save the rest.
func (m *machine) settle(t *rapid.T) {
	m.committer.Before(nil)
	m.committer.After(nil)
	m.saver.Before(nil)
	if _, err := m.Do(context.Background(), eventloop.Resynchronize{
		Kind:   eventloop.Downstream,
		Reason: "settle",
	}); err != nil {
		t.Fatal(err)
	}
}

// arm makes the machine fail according to the script.
func (m *machine) arm(s *script) {
	once := func(atomic bool, err error) eventlooptest.Hook {
		return func(_ context.Context, c eventloop.Change) error {
			if c.Atomic != atomic {
				return nil // the inverse is to work
			}
			if err == nil {
				panic("committer")
			}
			return err
		}
	}
	switch {
	case s.commit == "refused":
		m.committer.Before(once(true, errBoom))
	case s.commit == "not undone":
		m.committer.After(once(!s.bestEffort, errBoom))
	case s.commit == "panic":
		m.committer.After(once(!s.bestEffort, nil))
	}
	if s.save == "refused" {
		m.saver.Before(func(context.Context, []eventloop.Saved) error { return errBoom })
	}
}

// state is all that a failed atomic event must not change.
func (m *machine) state() any {
	var memory [3]map[string]int
	for i := range memory {
		memory[i] = maps.Clone(m.memory[i])
	}
	return []any{memory, m.committer.Values(), m.saver.Bucket("values")}
}

// fails reports whether any part of a script fails.
func (s *script) fails() bool {
	for _, a := range s.acts {
		if a.Ending != "" {
			return true
		}
	}
	return s.commit != "" || s.save != ""
}

func TestPropertyAFailedAtomicEventChangesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine()
		stop := eventlooptest.Ready(t, m.Loop)
		defer stop()
		for _, s := range rapid.SliceOfN(scripts(), 1, 12).Draw(rt, "scripts") {
			m.settle(rt)
			before := m.state()
			m.arm(s)
			rec, err := m.Do(t.Context(), s)
			m.check(rt, before, ending{s, rec, err})
		}
	})
}

// ending is the outcome of a script.
type ending struct {
	*script
	rec *eventloop.Record
	err error
}

// check compares the machine with the script.
func (m *machine) check(t *rapid.T, before any, e ending) {
	s := e.script
	rec := e.rec
	err := e.err
	if (err != nil) != s.fails() {
		t.Fatalf("%s: error %v", s, err)
	}
	if len(m.found) != 0 {
		t.Fatalf("%s: verification found %v", s, m.found)
	}
	if s.save != "" && err != nil && errors.Is(err, eventloop.ErrNotSaved) && rec.Undone == s.bestEffort {
		t.Fatalf("%s: not saved, undone is %v", s, rec.Undone)
	}
	if err != nil && !s.bestEffort {
		if now := m.state(); !reflect.DeepEqual(now, before) || !rec.Undone || len(rec.Stuck) != 0 {
			t.Fatalf("%s failed (%v, undone %v) and left\n%v, was\n%v", s, err, rec.Undone, now, before)
		}
		return
	}
	for i, a := range s.acts {
		got, ok := m.committer.Values()[fmt.Sprint(i, "/", a.Key)]
		if ok != (a.Value != 0) || ok && got != a.Value || m.memory[i][a.Key] != a.Value {
			t.Fatalf("%s: handler %d's key holds %v, in memory %v", s, i, got, m.memory[i][a.Key])
		}
	}
}
