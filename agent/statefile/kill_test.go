package statefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/syscalltest"
	"github.com/weftnet/weft/kvscheduler"
)

// TestMain can run the test binary as a process that is killed.
func TestMain(m *testing.M) {
	syscalltest.Main(runVictim)
	goleak.VerifyTestMain(m)
}

// The arguments of victims: what they do with the state file in which directory.
const (
	opens   = "open"   // creates or opens it
	saves   = "save"   // writes a generation of values over another one
	empties = "empty"  // empties a bucket
	reboots = "reboot" // stores the ID of another boot
)

// manyValues are more than a page of the file holds.
const manyValues = 40

// generation returns values that belong together, and the deletion of a value of the other generation.
func generation(name, other string) []eventloop.Saved {
	saved := []eventloop.Saved{
		{Bucket: BucketNodes, Key: "only of " + name, Value: name}, {Bucket: BucketNodes, Key: "only of " + other},
	}
	for n := range manyValues {
		saved = append(saved, lease(fmt.Sprintf("%03d", n), name+strings.Repeat(" padding", n)))
	}
	return saved
}

// runVictim is the function of a process that is killed.
func runVictim(argument string) error {
	what, dir, _ := strings.Cut(argument, ":")
	f, err := Open(context.Background(), stateIn(dir), quiet)
	if err != nil {
		return err
	}
	switch what {
	case opens:
	case saves:
		f.Journal.Add(kvscheduler.JournalEntry{Ref: "k/new", V: []byte("1")})
		err = f.Save(context.Background(), generation("new", "old"))
	case empties:
		err = f.Clear(BucketLeases)
	case reboots:
		_, err = f.SwapBootID("new")
	default:
		err = errors.New("unknown argument " + argument)
	}
	return errors.Join(err, f.db.Close())
}

func stateIn(dir string) string { return filepath.Join(dir, "state.db") }

// prepareState makes a folder with a state file of the old generation, as an agent that has ended leaves it.
func prepareState(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	f, err := Open(t.Context(), stateIn(dir), quiet)
	if err != nil {
		t.Fatal(err)
	}
	save(t, f, generation("old", "new")...)
	if _, err := f.SwapBootID("old"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// reopen opens the state file as the next agent does, and requires that it is valid and the only file.
func reopen(t *testing.T, dir string) *File {
	t.Helper()
	f := openState(t, stateIn(dir))
	if f.Quarantined != "" {
		t.Errorf("the file is damaged: %s", f.Quarantined)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
	return f
}

// generationOf returns the generation of which all values are.
func generationOf(t *testing.T, f *File) (name string) {
	t.Helper()
	of := func(value string) string {
		first, _, _ := strings.Cut(value, " ")
		return first
	}
	name = of(leaseOf(t, f, "000"))
	for n := range manyValues {
		if got := of(leaseOf(t, f, fmt.Sprintf("%03d", n))); got != name {
			t.Errorf("value %d is of %q, the first one of %q", n, got, name)
		}
	}
	nodes, err := Load[string](f, BucketNodes, quiet)
	if err != nil || len(nodes) != 1 || nodes[0] != name {
		t.Errorf("values of another bucket: %q, %v; leases are of %q", nodes, err, name)
	}
	return name
}

func TestAStateFileIsTheOldOrTheNewOneWhenTheAgentIsKilledDuringASave(t *testing.T) {
	kills := syscalltest.Walk(t, func(int) (dir, argument string) {
		dir = prepareState(t)
		return dir, saves + ":" + dir
	}, func(t *testing.T, dir string, killed bool) {
		f := reopen(t, dir)
		name := generationOf(t, f)
		if name != "new" && (!killed || name != "old") {
			t.Errorf("killed %t: values of %q", killed, name)
		}
		hasJournal := f.has(eventloop.Saved{Bucket: BucketApplied, Key: "k/new"})
		if hasJournal != (name == "new") {
			t.Errorf("values of %q, the applied value is there: %t", name, hasJournal)
		}
	})
	t.Logf("%d kills", kills)
	if kills < 4 { // pages, sync, meta page, sync
		t.Errorf("only %d kills", kills)
	}
}

func TestAStateFileIsValidWhenTheAgentIsKilledWhileItCreatesIt(t *testing.T) {
	kills := syscalltest.Walk(t, func(int) (dir, argument string) {
		dir = t.TempDir()
		return dir, opens + ":" + dir
	}, func(t *testing.T, dir string, _ bool) {
		f := reopen(t, dir)
		if !f.Incomplete {
			t.Error("a new file counts as complete")
		}
		save(t, f, generation("new", "old")...)
		if name := generationOf(t, f); name != "new" {
			t.Errorf("saved values are of %q", name)
		}
	})
	t.Logf("%d kills", kills)
	if kills < 4 {
		t.Errorf("only %d kills", kills)
	}
}

func TestAStateFileIsTheOldOrTheNewOneWhenTheAgentIsKilledAfterAReboot(t *testing.T) {
	for _, what := range []string{empties, reboots} {
		t.Run(what, func(t *testing.T) {
			kills := syscalltest.Walk(t, func(int) (dir, argument string) {
				dir = prepareState(t)
				return dir, what + ":" + dir
			}, func(t *testing.T, dir string, killed bool) {
				f := reopen(t, dir)
				leases, err := Load[string](f, BucketLeases, quiet)
				if err != nil || len(leases) != manyValues && (what == reboots || len(leases) > 0) {
					t.Errorf("killed %t: %d leases, %v", killed, len(leases), err)
				}
				if boot, err := f.SwapBootID("next"); err != nil ||
					boot != "old" && (what == empties || boot != "new") {
					t.Errorf("killed %t: the boot ID is %q, %v", killed, boot, err)
				}
			})
			if kills < 4 {
				t.Errorf("only %d kills", kills)
			}
		})
	}
}
