package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// fullDisk is a file system of 1 MiB; fill uses up its free space until free is called.
type fullDisk struct{ dir string }

func newFullDisk(t *testing.T) fullDisk {
	t.Helper()
	netnstest.Require(t) // the tests' own mount namespace
	d := fullDisk{t.TempDir()}
	if err := unix.Mount("tmpfs", d.dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("needs to mount a tmpfs: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
	return d
}

func (d fullDisk) fill(t *testing.T) {
	t.Helper()
	err := os.WriteFile(filepath.Join(d.dir, "filler"), make([]byte, 2<<20), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
}

func (d fullDisk) free(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(d.dir, "filler")); err != nil {
		t.Fatal(err)
	}
}

// openState opens a state file until the end of the test.
func openState(t *testing.T, path string) *statefile.File {
	t.Helper()
	f, err := statefile.Open(t.Context(), path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// stateCondition returns the condition of the state file in weftctl status.
func stateCondition(t *testing.T, h *health.Conditions) health.Condition {
	t.Helper()
	_, conditions := h.Snapshot()
	for _, c := range conditions {
		if c.Name == health.State {
			return c
		}
	}
	t.Fatal("the condition state is missing")
	return health.Condition{}
}

// trials is longer than the interval of trial writes after a failed write.
const trials = 6 * time.Second

// The condition does not delay DELs.
func TestFullDiskIsAConditionUntilATrialWriteSucceeds(t *testing.T) {
	disk := newFullDisk(t)
	s := openState(t, filepath.Join(disk.dir, "state.db"))
	synctest.Test(t, func(t *testing.T) {
		h := health.New("", quiet)
		h.Set(health.Started, true, "")
		h.Set(health.Dataplane, true, "")
		h.Advise(health.State)
		m := statefile.NewMonitor(s, h.SetErr(health.State), quiet)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		if c := stateCondition(t, h); !c.OK {
			t.Errorf("before: %+v", c)
		}
		for round := range 2 {
			disk.fill(t)
			if err := s.Save(ctx, values(round)); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("saved to a full disk: %v", err)
			}
			if c := stateCondition(t, h); c.OK || !strings.Contains(c.Message, "no space left on device") {
				t.Errorf("full: %+v", c)
			}
			if err := h.Missing(); err != nil {
				t.Errorf("DELs are delayed: %v", err)
			}
			<-time.After(trials) // of the bubble's clock
			synctest.Wait()
			if c := stateCondition(t, h); c.OK {
				t.Error("the condition holds although a trial write failed")
			}
			disk.free(t)
			<-time.After(trials) // of the bubble's clock
			synctest.Wait()
			if c := stateCondition(t, h); !c.OK || c.Message != "" {
				t.Errorf("free: %+v", c)
			}
			if err := s.Save(ctx, values(round)); err != nil {
				t.Errorf("not saved: %v", err)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if got, err := statefile.Load[string](s, statefile.BucketLeases, quiet); err != nil || len(got) != 200 {
		t.Errorf("%d values are in the file, %v", len(got), err)
	}
	var left []byte
	if there, _ := s.Get(statefile.BucketMeta, "trial", &left); there {
		t.Error("the trial write is left in the file")
	}
}

// values returns more values than fit into the file's free pages.
func values(round int) (saved []eventloop.Saved) {
	for i := range 100 {
		saved = append(saved, eventloop.Saved{
			Bucket: statefile.BucketLeases,
			Key:    fmt.Sprintf("%d-%d", round, i),
			Value:  strings.Repeat("x", 1000),
		})
	}
	return saved
}

// With the real programs: ADD and STATUS fail with the reason, a DEL succeeds, and weftctl status shows the reason.
func TestOnAFullDiskAddAndStatusFailWithTheReasonAndDelSucceeds(t *testing.T) {
	l := newLab(t, programs.Build(t))
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	disk := fullDisk{l.State()}
	if err := unix.Mount("tmpfs", disk.dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("needs to mount a tmpfs: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk.dir, unix.MNT_DETACH) })
	l.start()
	before := l.pod("before")
	other := l.pod("other")
	l.cni("ADD", before, nil)
	disk.fill(t)
	failed := false
	for n := 0; n < 100 && !failed; n++ { // until the file's free pages are used up
		err := l.tryCNI("ADD", other)
		if failed = err != nil; failed && !strings.Contains(err.Error(), `"code": 5`) {
			t.Errorf("ADD: %v", err)
		}
		l.cni("DEL", other, nil)
	}
	if !failed {
		t.Fatal("no ADD failed on a full disk")
	}
	l.awaitStatus("state file cannot be written", true)
	out, err := exec.CommandContext(t.Context(), l.Program("weft-agent"), "health", "--socket",
		l.Socket()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "state: the state file cannot be written") {
		t.Errorf("weft-agent health: %v: %s", err, out)
	}
	if status, err := l.Weftctl(t.Context(), "status"); err == nil || !strings.Contains(status, "not ready") {
		t.Errorf("weftctl status: %v: %s", err, status)
	}
	for verb, code := range map[string]string{"ADD": `"code": 11`, "STATUS": `"code": 50`} {
		err := l.tryCNI(verb, other)
		if err == nil || !strings.Contains(err.Error(), code) ||
			!strings.Contains(err.Error(), "the state file cannot be written") {
			t.Errorf("%s: %v, want %s with the reason", verb, err, code)
		}
	}
	l.cni("DEL", before, nil)
	disk.free(t)
	l.awaitStatus("state file cannot be written", false)
	l.cni("ADD", other, nil)
	l.cni("DEL", other, nil)
}

// tryCNI executes the plugin, and returns its output if it fails.
func (l *lab) tryCNI(verb string, p *node.Pod) error {
	l.Helper()
	cmd := exec.CommandContext(l.Context(), l.Program("weft-cni"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+p.ContainerID, "CNI_NETNS="+p.Netns,
		"CNI_IFNAME=eth0", "CNI_PATH=/")
	cmd.Stdin = bytes.NewReader(l.netconf(nil))
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// awaitStatus waits until the output of weftctl status contains text, or no longer does.
func (l *lab) awaitStatus(text string, said bool) {
	l.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for {
		out, err := l.Weftctl(l.Context(), "status")
		if out != "" && strings.Contains(out, text) == said {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			l.Fatalf("status, %v: %s", err, out)
		}
	}
}
