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

func TestWaitingTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := stopwatch.Time(func() { <-time.After(10 * time.Second) })
		if took < 9*time.Second || took > 10*time.Second {
			t.Errorf("10 s took %s", took)
		}
	})
}

// TestMain fails on a leaked goroutine.
func TestTimeLeavesNoGoroutine(t *testing.T) {
	stopwatch.Time(t.SkipNow)
}

// stopped is set in the environment of a process that is suspended.
const stopped = "WEFT_STOPWATCH_STOPPED"

// A process that is suspended for longer than the limit measures less than that.
func TestTimeOfASuspendedProcessDoesNotCount(t *testing.T) {
	const pause = 2 * time.Second
	if os.Getenv(stopped) != "" {
		began := time.Now()
		took := stopwatch.Time(func() {
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			for time.Since(began) < pause { // until this thread gets the signal
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
	var output strings.Builder
	cmd.Stdout = &output
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the process is not stopped: %v, %v", status, err)
	}
	<-time.After(pause)
	if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &output)
	}
}
