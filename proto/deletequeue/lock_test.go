package deletequeue

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// writerDir is an environment variable. It makes the test binary a plugin that adds entries to this queue until the
// agent serves.
const writerDir = "WEFT_TEST_QUEUE"

// serving is the name of a file that represents the agent's socket.
const serving = "serving"

// writer adds entries and prints them until the agent serves.
func writer(dir string) int {
	q, err := Open(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	served := func() bool { return exists(filepath.Join(dir, serving)) }
	for i := 0; ; i++ {
		answered := false
		container := fmt.Sprintf("w%d-%d", os.Getpid(), i)
		err := q.AddUnless(context.Background(), entryOf(container), func() bool {
			answered = served()
			return answered
		})
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, err)
			return 1
		case answered:
			return 0
		}
		fmt.Println(container)
	}
}

type process struct {
	*exec.Cmd
	out, err bytes.Buffer
}

func startWriter(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), os.Args[0])}
	p.Env = append(os.Environ(), writerDir+"="+dir)
	p.Stdout = &p.out
	p.Stderr = &p.err
	must(t, p.Start())
	return p
}

func (p *process) queued(t *testing.T) []string {
	t.Helper()
	if err := p.Wait(); err != nil {
		t.Fatalf("%v: %s", err, p.err.String())
	}
	var containers []string
	for lines := bufio.NewScanner(&p.out); lines.Scan(); {
		containers = append(containers, lines.Text())
	}
	return containers
}

func TestNoDeleteIsLostWhenTheAgentStarts(t *testing.T) {
	for round := range 5 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			q := open(t, t.TempDir())
			dir := string(q.dir)
			writers := []*process{startWriter(t, dir), startWriter(t, dir), startWriter(t, dir)}
			eventually(t, func() bool { n, _ := q.Len(); return n >= 10 })

			unlock, err := q.Lock(t.Context())
			must(t, err)
			var drained []string
			if _, failed, err := q.Drain(t.Context(), recordTo(&drained)); err != nil || failed > 0 {
				t.Error(failed, err)
			}
			write(t, q.dir.path(serving), "", 0o600)
			unlock()

			var queued []string
			for _, w := range writers {
				queued = append(queued, w.queued(t)...)
			}
			slices.Sort(drained)
			slices.Sort(queued)
			if !slices.Equal(drained, queued) {
				t.Errorf("queued %v\ndrained %v", queued, drained)
			}
			wantLen(t, q, 0)
		})
	}
}

func TestWriterWaitsForTheExclusiveLockUntilItsDeadline(t *testing.T) {
	dir := t.TempDir()
	agent := open(t, dir)
	plugin := open(t, dir)
	unlock, err := agent.Lock(t.Context())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*lockPoll)
	defer cancel()
	err = plugin.add(ctx, entryOf("a"))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another process holds it") {
		t.Errorf("got %v", err)
	}
	unlock()
	unlock()
	add(t, plugin, entryOf("a"))
}

func TestLockThatIsTakenAgainExcludesWriters(t *testing.T) {
	dir := t.TempDir()
	agent := open(t, dir)
	plugin := open(t, dir)
	for range 2 {
		unlock, err := agent.Lock(t.Context())
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*lockPoll)
		if err := plugin.add(ctx, entryOf("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a DEL is queued under the lock: %v", err)
		}
		cancel()
		unlock()
	}
}

func TestWriterWaitsForTheDrain(t *testing.T) {
	dir := t.TempDir()
	agent := open(t, dir)
	plugin := open(t, dir)
	add(t, plugin, entryOf("a"))
	err := drain(t, agent, func(Entry) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*lockPoll)
		defer cancel()
		if err := plugin.add(ctx, entryOf("b")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a DEL is queued during the drain: %v", err)
		}
		return nil
	}, counts{1, 0})
	must(t, err)
	add(t, plugin, entryOf("b"))
	wantLen(t, plugin, 1)
}

func TestWritersDoNotExcludeEachOther(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	second := open(t, dir)
	err := first.AddUnless(t.Context(), entryOf("a"), func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := second.add(ctx, entryOf("b")); err != nil {
			t.Errorf("the second writer: %v", err)
		}
		return false
	})
	must(t, err)
	wantLen(t, first, 2)
}

func TestLockHolderCanUseAllMethods(t *testing.T) {
	dir := t.TempDir()
	q := open(t, dir)
	other := open(t, dir)
	unlock, err := q.Lock(t.Context())
	must(t, err)
	add(t, q, entryOf("a"), entryOf("b"))
	must(t, q.Remove(t.Context(), keyOf("b")))
	var seen []string
	must(t, drain(t, q, recordTo(&seen), counts{1, 0}))

	ctx, cancel := context.WithTimeout(t.Context(), 3*lockPoll)
	defer cancel()
	if err := other.add(ctx, entryOf("c")); err == nil {
		t.Error("the end of the drain released the lock that was taken before")
	}
	unlock()
	add(t, other, entryOf("c"))
}

func TestRemovedDirectoryIsCreatedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	q := open(t, dir)
	must(t, os.RemoveAll(dir))
	add(t, q, entryOf("a"))
	wantLen(t, q, 1)
}

func TestSameDirDetectsAReplacedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	must(t, os.Mkdir(dir, 0o700))
	opened, err := os.Open(dir)
	must(t, err)
	defer func() { _ = opened.Close() }()
	if !sameDir(opened, dir) {
		t.Error("not the same directory before the rename")
	}
	must(t, os.Rename(dir, dir+".old"))
	if sameDir(opened, dir) {
		t.Error("the same directory after the rename")
	}
	must(t, os.Mkdir(dir, 0o700))
	if sameDir(opened, dir) {
		t.Error("the same directory after another one was created")
	}
}

// eventually polls a condition that depends on another process.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatal("the condition did not become true within a minute")
		case <-tick.C:
		}
	}
}
