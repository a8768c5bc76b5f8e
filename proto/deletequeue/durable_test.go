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

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/syscalltest"
)

// A power failure loses data that is not synced. The content must be synced before the rename, and the directory before
// the plugin reports success to the runtime.
func TestEntryIsSyncedBeforeTheRenameAndTheDirectoryAfter(t *testing.T) {
	q := open(t, t.TempDir())
	var syncs []string
	err := syscalltest.Observe(t, syscalltest.Syncs, func() error { return q.add(t.Context(), entryOf("a")) },
		func(path string) {
			what := "directory"
			if path != string(q.dir) {
				what = "file in " + filepath.Base(filepath.Dir(path))
			}
			if exists(q.dir.path(keyOf("a").fileName())) {
				what += " with the entry"
			}
			syncs = append(syncs, what)
		})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"file in " + filepath.Base(string(q.dir)), "directory with the entry"}
	if !slices.Equal(syncs, want) {
		t.Errorf("synced %q, expected %q", syncs, want)
	}
	wantLen(t, q, 1)
}

// A lock on a directory that was replaced excludes no process.
func TestADirectoryThatIsReplacedWhileItIsLockedIsLockedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	q := open(t, dir)
	other := open(t, dir)
	var unlock func()
	replaced := false
	lock := func() (err error) {
		unlock, err = q.Lock(t.Context())
		return err
	}
	err := syscalltest.Observe(t, []uint32{unix.SYS_FLOCK}, lock, func(path string) {
		if path == dir && !replaced { // it is open, and not locked yet
			replaced = true
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.Mkdir(dir, 0o700))
		}
	})
	must(t, err)
	if !replaced {
		t.Fatal("the directory was not replaced")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*lockPoll)
	defer cancel()
	if err := other.add(ctx, entryOf("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a DEL is queued under the lock: %v", err)
	}
	unlock()
	add(t, other, entryOf("a"))
}

// The arguments of victims: what they do in which directory.
const (
	addsEntry    = "add:"   // replaces an entry by a newer one
	drainsFailed = "drain:" // an entry fails
)

const (
	before = time.Minute // of the older entry
	queued = "a"
)

// runVictim is the function of a process that is killed.
func runVictim(argument string) error {
	what, dir, _ := strings.Cut(argument, ":")
	q, err := Open(dir)
	if err != nil {
		return err
	}
	switch what + ":" {
	case addsEntry:
		return q.add(context.Background(), entryOf(queued))
	case drainsFailed:
		_, _, err := q.Drain(context.Background(), func(Entry) error { return errBroken })
		if errors.Is(err, errBroken) { // it was poisoned
			return nil
		}
		return err
	}
	return errors.New("unknown argument " + argument)
}

// prepareEntry makes a queue with an entry.
func prepareEntry(t *testing.T, e Entry) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "queue")
	must(t, err)
	content, err := e.encode()
	must(t, err)
	must(t, directory(dir).write(e.Key().fileName(), content))
	return dir
}

// requireNoLeftovers drains the queue, as the next agent does, and requires that nothing but the allowed files is left.
func requireNoLeftovers(t *testing.T, dir string, allowed ...string) {
	t.Helper()
	q := open(t, dir)
	var seen []string
	if _, failed, err := q.Drain(t.Context(), recordTo(&seen)); err != nil || failed > 0 {
		t.Errorf("the next drain: %d failed, %v", failed, err)
	}
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		if f.Name() != ".gate" && !slices.Contains(allowed, f.Name()) {
			t.Errorf("left behind: %s", f.Name())
		}
	}
}

func TestAnEntryIsTheOldOrTheNewOneWhenItsWriterIsKilled(t *testing.T) {
	old := NewEntry(keyOf(queued), start.Add(-before))
	kills := syscalltest.Walk(t, func(int) (dir, argument string) {
		dir = prepareEntry(t, old)
		return dir, addsEntry + dir
	}, func(t *testing.T, dir string, killed bool) {
		e, err := readEntry(filepath.Join(dir, keyOf(queued).fileName()))
		if err != nil || !e.Time.Equal(start) && (!killed || !e.Time.Equal(old.Time)) {
			t.Errorf("killed %t: the entry is %+v, %v", killed, e, err)
		}
		requireNoLeftovers(t, dir)
	})
	if kills < 4 { // write, sync, rename, sync of the directory
		t.Errorf("only %d kills", kills)
	}
}

func TestAnEntryIsTheOldOrTheNewOneWhenTheDrainIsKilled(t *testing.T) {
	for name, attempts := range map[string]int{"it failed once": 0, "it is poisoned": maxAttempts - 1} {
		t.Run(name, func(t *testing.T) {
			old := NewEntry(keyOf(queued), start)
			old.Attempts = attempts
			name := keyOf(queued).fileName()
			kills := syscalltest.Walk(t, func(int) (dir, argument string) {
				dir = prepareEntry(t, old)
				return dir, drainsFailed + dir
			}, func(t *testing.T, dir string, killed bool) {
				e, err := readEntry(filepath.Join(dir, name))
				poisoned := exists(filepath.Join(dir, poisonDir, name))
				if poisoned {
					e, err = readEntry(filepath.Join(dir, poisonDir, name))
				}
				if err != nil || e.Attempts < attempts || e.Attempts > attempts+1 ||
					poisoned && exists(filepath.Join(dir, name)) {
					t.Errorf("killed %t: the entry is %+v, poisoned %t, %v", killed, e, poisoned, err)
				}
				requireNoLeftovers(t, dir, poisonDir)
			})
			if kills < 2 {
				t.Errorf("only %d kills", kills)
			}
		})
	}
}
