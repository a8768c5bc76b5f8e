package deletequeue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestOpenCreatesAPrivateDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "var", "queue")
	q := open(t, dir)
	add(t, q, entryOf("a"))
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, keyOf("a").fileName()): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want mode %o", filepath.Base(path), info.Mode(), err, want)
		}
	}
}

func TestRepeatedDeleteIsOneEntry(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("a"), NewEntry(keyOf("a"), start.Add(time.Hour)))
	wantLen(t, q, 1)
}

func TestFullQueueAcceptsOnlyKnownKeys(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("known"))
	for i := range MaxEntries - 1 {
		write(t, q.dir.path(fmt.Sprintf("%d.json", i)), "", 0o600)
	}
	if err := q.add(t.Context(), entryOf("new")); !errors.Is(err, ErrFull) {
		t.Errorf("a new entry gives %v", err)
	}
	add(t, q, entryOf("known"))
	wantLen(t, q, MaxEntries)
}

func TestAddUnlessAddsNoEntryIfServed(t *testing.T) {
	q := open(t, t.TempDir())
	if err := q.AddUnless(t.Context(), entryOf("a"), func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	wantLen(t, q, 0)
}

func TestInvalidKeyIsRejected(t *testing.T) {
	q := open(t, t.TempDir())
	if err := q.add(t.Context(), NewEntry(Key{"weft", "../c", "eth0"}, start)); err == nil {
		t.Error("accepted")
	}
	wantLen(t, q, 0)
}

func TestRemovedEntryIsNotDrained(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("a"), entryOf("b"))
	must(t, q.Remove(t.Context(), keyOf("a")))
	must(t, q.Remove(t.Context(), keyOf("missing")))
	var seen []string
	if err := drain(t, q, recordTo(&seen), counts{1, 0}); err != nil {
		t.Error(err)
	}
	if len(seen) != 1 || seen[0] != "b" {
		t.Errorf("drained: %v", seen)
	}
}

func TestEntryRemovedDuringTheDrainIsSkipped(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("a"), entryOf("b"))
	var seen []string
	_ = drain(t, q, func(e Entry) error {
		seen = append(seen, e.ContainerID)
		return q.Remove(t.Context(), keyOf("b"))
	}, counts{1, 0})
	if len(seen) != 1 {
		t.Errorf("drained: %v", seen)
	}
}

func TestRemoveWaitsForTheRunningDelete(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("a"))
	began := make(chan struct{})
	finish := make(chan struct{})
	removed := make(chan error, 1)
	go func() {
		_, _, _ = q.Drain(t.Context(), func(Entry) error { close(began); <-finish; return errBroken })
	}()
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Remove(ctx, keyOf("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("Remove returned %v for an ended context", err)
	}
	go func() { removed <- q.Remove(t.Context(), keyOf("a")) }()
	close(finish)
	must(t, <-removed)
	wantLen(t, q, 0)
}
