package statefile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/kvscheduler"
)

var quiet = slog.New(slog.DiscardHandler)

func openState(t *testing.T, path string) *File {
	t.Helper()
	s, err := Open(t.Context(), path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func save(t *testing.T, s *File, saved ...eventloop.Saved) {
	t.Helper()
	if err := s.Save(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
}

func TestSavedValuesAreReadAfterReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "state.db")
	s := openState(t, path)
	save(t, s, eventloop.Saved{Bucket: BucketLeases, Key: "a", Value: "one"}, eventloop.Saved{
		Bucket: BucketLeases,
		Key:    "b",
		Value:  "two",
	})
	save(t, s, eventloop.Saved{Bucket: BucketLeases, Key: "a"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := Load[string](openState(t, path), BucketLeases, quiet)
	if err != nil || len(got) != 1 || got[0] != "two" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFailedSaveWritesNothing(t *testing.T) {
	s := openState(t, filepath.Join(t.TempDir(), "state.db"))
	err := s.Save(t.Context(), []eventloop.Saved{
		{Bucket: BucketLeases, Key: "a", Value: "one"},
		{Bucket: BucketLeases, Key: "b", Value: func() {}},
	})
	if err == nil {
		t.Fatal("an invalid value was saved")
	}
	if got, _ := Load[string](s, BucketLeases, quiet); len(got) != 0 {
		t.Errorf("a failed save wrote %q", got)
	}
}

func TestDamagedFileIsMovedAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	for i := range 200 {
		save(t, s, eventloop.Saved{Bucket: BucketLeases, Key: fmt.Sprint(i), Value: strings.Repeat("x", 200)})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// bbolt opens the file because the two meta pages are valid.
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 2 * os.Getpagesize(); i < len(raw); i++ {
		raw[i] = 0xa5
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	again := openState(t, path)
	if again.Quarantined == "" {
		t.Fatal("a damaged file was accepted")
	}
	if kept, err := os.ReadFile(again.Quarantined); err != nil || len(kept) != len(raw) {
		t.Errorf("the damaged file was not kept: %d bytes, %v", len(kept), err)
	}
	if got, err := Load[string](again, BucketLeases, quiet); err != nil || len(got) != 0 {
		t.Errorf("the new file holds %d leases, %v", len(got), err)
	}
}

func TestFileOfAnotherFormatIsMovedAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, []byte("not a database at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := openState(t, path); s.Quarantined == "" {
		t.Error("the file was accepted")
	}
}

func TestNewerSchemaIsRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	err := s.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(BucketMeta)).Put([]byte("schema"), binary.BigEndian.AppendUint32(nil, schemaVersion+1))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path, quiet); err == nil || !strings.Contains(err.Error(), "schema 2") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the newer file was moved: %v", err)
	}
}

func TestOpenNamesTheProcessThatLockedTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	openState(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, path, quiet)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("locked by process %d", os.Getpid())) {
		t.Errorf("got %v", err)
	}
}

func TestLoadSkipsInvalidEntries(t *testing.T) {
	s := openState(t, filepath.Join(t.TempDir(), "state.db"))
	save(t, s, eventloop.Saved{Bucket: BucketLeases, Key: "a", Value: 7}, eventloop.Saved{
		Bucket: BucketLeases,
		Key:    "b",
		Value:  "two",
	})
	if got, err := Load[string](s, BucketLeases, quiet); err != nil || len(got) != 1 || got[0] != "two" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestSaveWritesBufferedJournalEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	entries := []kvscheduler.JournalEntry{{Ref: "k/a", Hash: 1, V: []byte("1")}, {Ref: "k/b", Hash: 2, V: []byte("2")}}
	if err := s.Journal.Append(entries); err != nil {
		t.Fatal(err)
	}
	save(t, s, eventloop.Saved{Bucket: BucketLeases, Key: "a", Value: "one"})
	if err := s.Journal.Append([]kvscheduler.JournalEntry{{Ref: "k/a"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for e, err := range openState(t, path).Journal.Load() {
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, e.Ref)
	}
	if fmt.Sprint(refs) != "[k/b]" {
		t.Errorf("got %v", refs)
	}
}

func TestSaveIsSafeForConcurrentUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	const (
		savers = 8
		each   = 50
	)
	var all sync.WaitGroup
	for saver := range savers {
		all.Go(func() {
			for n := range each {
				entry := kvscheduler.JournalEntry{Ref: fmt.Sprintf("vpp.route/%d-%d", saver, n), V: []byte("{}")}
				if err := errors.Join(s.Journal.Append([]kvscheduler.JournalEntry{entry}),
					s.Save(t.Context(), nil)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, err := range openState(t, path).Journal.Load() {
		if err != nil {
			t.Fatal(err)
		}
		kept++
	}
	if kept != savers*each {
		t.Errorf("%d of %d applied values exist after reopening", kept, savers*each)
	}
}

func TestLastTransactionsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	for seq := range uint64(keptTransactions + 3) {
		s.Transactions.Add(&kvscheduler.Record{Seq: seq + 1, Label: "x"})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := Load[*kvscheduler.Record](openState(t, path), BucketTransactions, quiet)
	if err != nil || len(got) != keptTransactions || got[0].Seq != 4 {
		t.Fatalf("kept %d, the first is number %d, %v", len(got), got[0].Seq, err)
	}
}

// Regression test: kill -9 a second after an ADD lost the transaction of the ADD.
func TestFlushSoonWritesTransactionsWithoutASave(t *testing.T) {
	s := openState(t, filepath.Join(t.TempDir(), "state.db"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.FlushSoon(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	for seq := range uint64(3) {
		s.Transactions.Add(&kvscheduler.Record{Seq: seq + 1, Label: "x"})
	}
	k8stest.Eventually(t, "the log is durable", func() bool {
		got, err := Load[*kvscheduler.Record](s, BucketTransactions, quiet)
		return err == nil && len(got) == 3
	})
}

func TestSwapBootIDReturnsThePreviousID(t *testing.T) {
	s := openState(t, filepath.Join(t.TempDir(), "state.db"))
	for _, step := range []struct{ id, before string }{{"one", ""}, {"one", "one"}, {"two", "one"}} {
		if before, err := s.SwapBootID(step.id); err != nil || before != step.before {
			t.Errorf("boot id %s: got %q before, want %q, %v", step.id, before, step.before, err)
		}
	}
}

func TestNewFileIsIncompleteUntilTheKeyIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	again := func(s *File) *File {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return openState(t, path)
	}
	s := openState(t, path)
	if !s.Incomplete {
		t.Error("a new file is complete")
	}
	if s = again(s); !s.Incomplete {
		t.Error("a reopened file is complete")
	}
	save(t, s, eventloop.Saved{Bucket: BucketMeta, Key: KeyIncomplete})
	if s = again(s); s.Incomplete {
		t.Error("the file is incomplete after the key was removed")
	}
	save(t, s, eventloop.Saved{Bucket: BucketAttachments, Key: "a", Value: 7})
	if got, err := Load[string](s, BucketAttachments, quiet); err != nil || len(got) != 0 || !s.Incomplete {
		t.Errorf("got %q, %v: the file is complete although an entry is invalid", got, err)
	}
}

// The file contains secrets of memifs. An existing file may have another mode.
func TestOtherUsersCannotReadTheStateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	save(t, s, eventloop.Saved{Bucket: BucketLeases, Key: "a", Value: "one"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := path + ".damaged-1"
	link := path + ".damaged-2"
	theirs := filepath.Join(t.TempDir(), "theirs")
	err := errors.Join(os.WriteFile(damaged, nil, 0o600), os.WriteFile(theirs, nil, 0o600), os.Symlink(theirs, link))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, damaged, theirs} {
		if err := os.Chmod(name, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	again := openState(t, path)
	if got, err := Load[string](again, BucketLeases, quiet); err != nil || len(got) != 1 {
		t.Errorf("the file has %q, %v", got, err)
	}
	for name, want := range map[string]os.FileMode{path: 0o600, damaged: 0o600, theirs: 0o644} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s has %v, want %v, %v", name, info.Mode(), want, err)
		}
	}
}

func TestOtherUsersCannotReadADamagedStateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := errors.Join(os.WriteFile(path, []byte("not a database at all"), 0o600),
		os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	s := openState(t, path)
	if info, err := os.Stat(s.Quarantined); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
