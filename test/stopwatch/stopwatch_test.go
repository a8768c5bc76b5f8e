package stopwatch_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/stopwatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatWaitsIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := stopwatch.Time(func() { <-time.After(10 * time.Second) })
		if took < 9*time.Second || took > 10*time.Second {
			t.Errorf("10 s took %s", took)
		}
	})
}

// TestATestThatEndsWithinLeavesNoGoroutine, as TestMain sees.
func TestATestThatEndsWithinLeavesNoGoroutine(t *testing.T) {
	stopwatch.Time(t.SkipNow)
}

// stopped is set in the environment of a process that is to be held up.
const stopped = "WEFT_STOPWATCH_STOPPED"

// TestTheTimeInWhichTheProcessIsHeldUpDoesNotCount: a process that is stopped for longer than it may take says that it took less.
func TestTheTimeInWhichTheProcessIsHeldUpDoesNotCount(t *testing.T) {
	const pause = 2 * time.Second
	if os.Getenv(stopped) != "" {
		began := time.Now()
		took := stopwatch.Time(func() {
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			for time.Since(began) < pause { // this thread runs on until the signal has got to it
				runtime.Gosched()
			}
		})
		if took > time.Since(began)-pause/2 {
			t.Errorf("took %s of %s", took, time.Since(began))
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), stopped+"=1")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("it is not stopped: %v, %v", status, err)
	}
	<-time.After(pause)
	if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &said)
	}
}
