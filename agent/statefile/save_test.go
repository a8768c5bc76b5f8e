package statefile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
)

// soon is a context that ends while a disk does not answer.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func leaseOf(t *testing.T, s *File, key string) string {
	t.Helper()
	var v string
	if _, err := s.Get(BucketLeases, key, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func lease(key, value string) eventloop.Saved {
	return eventloop.Saved{Bucket: BucketLeases, Key: key, Value: value}
}

func TestSaveEndsWithItsContextWhileTheFileIsLocked(t *testing.T) {
	s := openState(t, filepath.Join(t.TempDir(), "state.db"))
	var told error
	s.OnFull = func(err error) { told = err }
	tx, err := s.db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Save(soon(t), []eventloop.Saved{lease("a", "abandoned")})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the disk does not answer") ||
		told == nil {
		t.Errorf("the first: %v, told %v", err, told)
	}
	if err := s.Save(soon(t), []eventloop.Saved{lease("b", "queued")}); err == nil ||
		!strings.Contains(err.Error(), "an earlier write") {
		t.Errorf("the second: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	save(t, s, lease("c", "third"))
	if got := leaseOf(t, s, "a") + leaseOf(t, s, "b") + leaseOf(t, s, "c"); got != "third" {
		t.Errorf("durable is %q", got)
	}
}

// hanging is an entry of a buffer whose encoding waits, as a disk does.
type hanging struct {
	begun, release chan struct{}
}

func (h hanging) MarshalJSON() ([]byte, error) {
	close(h.begun)
	<-h.release
	return []byte("1"), nil
}

func TestAWriteThatEndsAfterItsCallerLeftIsUndone(t *testing.T) {
	s := openState(t, filepath.Join(t.TempDir(), "state.db"))
	save(t, s, lease("old", "before"))
	b := NewBuffer(s, func(h hanging) []eventloop.Saved {
		return []eventloop.Saved{{Bucket: BucketNodes, Key: "h", Value: h}}
	})
	h := hanging{make(chan struct{}), make(chan struct{})}
	b.Add(h)
	ctx, leave := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		result <- s.Save(ctx, []eventloop.Saved{
			lease("old", "abandoned"), lease("new", "abandoned"), {Bucket: BucketLeases, Key: "old"},
		})
	}()
	<-h.begun
	leave()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatalf("the caller got %v", err)
	}
	close(h.release)
	save(t, s, lease("next", "saved"))
	if got := leaseOf(t, s, "old") + leaseOf(t, s, "new") + leaseOf(t, s, "next"); got != "beforesaved" {
		t.Errorf("durable is %q", got)
	}
	if !b.isEmpty() {
		t.Error("the entry of the buffer, which is durable, is still pending")
	}
}

func TestAPanicOfAnEncoderIsAnError(t *testing.T) {
	s := openState(t, filepath.Join(t.TempDir(), "state.db"))
	err := s.Save(t.Context(), []eventloop.Saved{{Bucket: BucketLeases, Key: "a", Value: panicking{}}})
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("got %v", err)
	}
	save(t, s, lease("a", "one"))
}

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("boom") }

// While the file cannot be written, an agent goes on: pods that fail leave applied values and their deletions,
// transactions leave records.
func TestBuffersHaveTheLastValueOfEachKey(t *testing.T) {
	s := openState(t, filepath.Join(t.TempDir(), "state.db"))
	entry := func(ref, value string) kvscheduler.JournalEntry {
		e := kvscheduler.JournalEntry{Ref: ref}
		if value != "" {
			e.V = json.RawMessage(value)
		}
		return e
	}
	if err := s.Journal.Append([]kvscheduler.JournalEntry{entry("k/kept", "1"), entry("k/deleted", "1")}); err != nil {
		t.Fatal(err)
	}
	save(t, s)
	for n := range 10 * keptTransactions {
		passing := fmt.Sprintf("k/%d", n)
		entries := []kvscheduler.JournalEntry{
			entry("k/kept", fmt.Sprint(n)), entry(passing, "1"), entry(passing, ""), entry("k/deleted", ""),
		}
		if err := s.Journal.Append(entries); err != nil {
			t.Fatal(err)
		}
		s.Transactions.Add(&kvscheduler.Record{Seq: uint64(n) + 1})
	}
	if n := len(s.Journal.pending); n != 2 {
		t.Errorf("%d applied values are pending, want 2", n)
	}
	if n := len(s.Transactions.pending); n != keptTransactions {
		t.Errorf("%d records are pending, want %d", n, keptTransactions)
	}
	save(t, s)
	var refs []string
	for e, err := range s.Journal.Load() {
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, e.Ref)
	}
	if fmt.Sprint(refs) != "[k/kept]" {
		t.Errorf("durable are %v", refs)
	}
}

func TestADeletionDuringTheWriteOfItsKeyIsKept(t *testing.T) {
	for name, end := range map[string]func(b buffer, version uint64){
		"the write succeeds": func(b buffer, version uint64) { b.settle(version) },
		"the write fails":    func(b buffer, _ uint64) { b.settle(0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := openState(t, filepath.Join(t.TempDir(), "state.db"))
			s.Journal.Add(kvscheduler.JournalEntry{Ref: "k/a", V: json.RawMessage("1")})
			err := s.db.Update(func(tx *bbolt.Tx) error {
				version, err := s.Journal.write(tx)
				s.Journal.Add(kvscheduler.JournalEntry{Ref: "k/a", V: json.RawMessage("2")})
				s.Journal.Add(kvscheduler.JournalEntry{Ref: "k/a"})
				defer end(s.Journal, version)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			save(t, s)
			if s.has(eventloop.Saved{Bucket: BucketApplied, Key: "k/a"}) {
				t.Error("the deleted key is in the file")
			}
		})
	}
}

// A write may fail after a buffer has given its entries to it, such as by a full disk. The next write has them.
func TestEntriesOfAWriteThatFailsStayBuffered(t *testing.T) {
	s := openState(t, filepath.Join(t.TempDir(), "state.db"))
	one := NewBuffer(s, func(value any) []eventloop.Saved {
		return []eventloop.Saved{{Bucket: BucketLeases, Key: "one", Value: value}}
	})
	two := NewBuffer(s, func(value any) []eventloop.Saved {
		return []eventloop.Saved{{Bucket: BucketLeases, Key: "two", Value: value}}
	})
	one.Add("kept")
	two.Add(panicking{})
	if err := s.Save(t.Context(), nil); err == nil {
		t.Fatal("an entry that cannot be encoded is no error")
	}
	two.Add("valid")
	save(t, s)
	for _, key := range []string{"one", "two"} {
		if !s.has(eventloop.Saved{Bucket: BucketLeases, Key: key}) {
			t.Errorf("the entry %s is lost", key)
		}
	}
}
