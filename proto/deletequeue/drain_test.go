package deletequeue

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var errBroken = errors.New("dataplane refused")

// recordTo returns a function for Drain that records containers, and fails for the containers in fail.
func recordTo(seen *[]string, fail ...string) func(Entry) error {
	return func(e Entry) error {
		*seen = append(*seen, e.ContainerID)
		if slices.Contains(fail, e.ContainerID) {
			return errBroken
		}
		return nil
	}
}

// counts are the results of a drain.
type counts struct{ done, failed int }

func drain(t *testing.T, q *Queue, do func(Entry) error, want counts) error {
	t.Helper()
	done, failed, err := q.Drain(t.Context(), do)
	if got := (counts{done, failed}); got != want {
		t.Errorf("drained %+v (%v), want %+v", got, err, want)
	}
	return err
}

func TestDrainHandlesOldestEntriesFirstAndRemovesThem(t *testing.T) {
	q := open(t, t.TempDir())
	// of the same time in the order of the names
	add(t, q, NewEntry(keyOf("a"), start.Add(time.Minute)), entryOf("z"), entryOf("b"))
	var seen []string
	if err := drain(t, q, recordTo(&seen), counts{3, 0}); err != nil {
		t.Error(err)
	}
	if !slices.Equal(seen, []string{"b", "z", "a"}) {
		t.Errorf("order %v", seen)
	}
	wantLen(t, q, 0)
}

func TestFailedEntryStaysAndOtherEntriesAreDrained(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("a"), entryOf("b"))
	var seen []string
	if err := drain(t, q, recordTo(&seen, "a"), counts{1, 1}); err != nil {
		t.Error(err)
	}
	e, err := readEntry(q.dir.path(keyOf("a").fileName()))
	if err != nil || e.Attempts != 1 || !e.Time.Equal(start) {
		t.Errorf("left %+v, %v", e, err)
	}
	wantLen(t, q, 1)
}

func TestEntryIsPoisonedAfterTenFailures(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("a"))
	var seen []string
	for range maxAttempts - 1 {
		if err := drain(t, q, recordTo(&seen, "a"), counts{0, 1}); err != nil {
			t.Fatal(err)
		}
	}
	wantLen(t, q, 1)
	if err := drain(t, q, recordTo(&seen, "a"), counts{0, 1}); !errors.Is(err, errBroken) {
		t.Errorf("poisoned with %v", err)
	}
	wantLen(t, q, 0)
	reason, err := os.ReadFile(filepath.Join(string(q.dir), poisonDir, keyOf("a").fileName()+".reason"))
	if err != nil || !strings.Contains(string(reason), "failed 10 times") {
		t.Errorf("reason is %q, %v", reason, err)
	}
}

func TestInvalidFileIsPoisonedAndOtherEntriesAreDrained(t *testing.T) {
	plant := map[string]func(t *testing.T, path string){
		"garbage":       func(t *testing.T, path string) { write(t, path, "{", 0o600) },
		"newer version": func(t *testing.T, path string) { write(t, path, `{"version":9}`, 0o600) },
		"name of another key": func(t *testing.T, path string) {
			b, _ := entryOf("other").encode()
			write(t, path, string(b), 0o600)
		},
		"writable by others": func(t *testing.T, path string) {
			b, _ := entryOf("bad").encode()
			write(t, path, string(b), 0o666)
		},
		"writable by the group": func(t *testing.T, path string) {
			b, _ := entryOf("bad").encode()
			write(t, path, string(b), 0o620)
		},
		"a directory":     func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) },
		"a symbolic link": func(t *testing.T, path string) { must(t, os.Symlink("/dev/zero", path)) },
	}
	for name, plant := range plant {
		t.Run(name, func(t *testing.T) {
			q := open(t, t.TempDir())
			plant(t, q.dir.path(keyOf("bad").fileName()))
			add(t, q, entryOf("good"))
			var seen []string
			if err := drain(t, q, recordTo(&seen), counts{1, 1}); err == nil {
				t.Error("no error about the poisoned file")
			}
			wantLen(t, q, 0)
			if !exists(filepath.Join(string(q.dir), poisonDir, keyOf("bad").fileName())) {
				t.Error("the file was not kept")
			}
		})
	}
}

func TestErrNotNowEndsTheDrainAndCountsNoAttempt(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("a"), entryOf("b"))
	calls := 0
	err := drain(t, q, func(Entry) error { calls++; return ErrNotNow }, counts{0, 0})
	if !errors.Is(err, ErrNotNow) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if e, err := readEntry(q.dir.path(keyOf("a").fileName())); err != nil || e.Attempts != 0 {
		t.Errorf("left %+v, %v", e, err)
	}
}

func TestCancelledDrainCountsNoAttempts(t *testing.T) {
	q := open(t, t.TempDir())
	add(t, q, entryOf("a"), entryOf("b"))
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err := q.Drain(ctx, func(Entry) error { cancel(); return context.Canceled })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wantLen(t, q, 2)
	if e, err := readEntry(q.dir.path(keyOf("a").fileName())); err != nil || e.Attempts != 0 {
		t.Errorf("left %+v, %v", e, err)
	}
}

func TestDrainRemovesIncompleteFilesOfCrashedWriters(t *testing.T) {
	q := open(t, t.TempDir())
	half := q.dir.path(tempPrefix + "123")
	write(t, half, "{", 0o600)
	var seen []string
	if err := drain(t, q, recordTo(&seen), counts{0, 0}); err != nil {
		t.Error(err)
	}
	if exists(half) {
		t.Error("the incomplete file still exists")
	}
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), mode))
	must(t, os.Chmod(path, mode))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
