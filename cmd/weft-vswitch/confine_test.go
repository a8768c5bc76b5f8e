package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/weftnet/weft/test/programs"
	"github.com/weftnet/weft/vswitch/confine"
	"github.com/weftnet/weft/vswitch/forward"
)

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs the released program until the test ends.
func start(t *testing.T, args ...string) (pid int, log *output) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	log = &output{}
	program := filepath.Join(programs.Build(t), "weft-vswitch")
	cmd := exec.CommandContext(t.Context(), program,
		append(args, "--api-socket", filepath.Join(dir, "api.sock"), "--workers", "3")...)
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	expect(t, "dataplane ready", func() bool { return strings.Contains(log.String(), "dataplane ready") })
	return cmd.Process.Pid, log
}

func expect(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: timeout", what)
		}
	}
}

// statuses returns the fields of /proc/<pid>/status for each thread.
func statuses(t *testing.T, pid int) (threads []map[string]string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of process %d: %v", pid, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		status := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			status[name] = strings.TrimSpace(value)
		}
		threads = append(threads, status)
	}
	return threads
}

// broker waits until the memif broker process is confined and returns its PID.
func broker(t *testing.T, pid int) (child int) {
	t.Helper()
	expect(t, "confined broker process", func() bool {
		children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, file := range children {
			text, _ := os.ReadFile(file)
			if fields := strings.Fields(string(text)); len(fields) > 0 {
				child, _ = strconv.Atoi(fields[0])
			}
		}
		// The broker inherits the filter of the dataplane. The file of an ended process is missing.
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
		return strings.Contains(string(status), "Seccomp_filters:\t2\n")
	})
	return child
}

// mask formats capabilities as in /proc.
func mask(values []cap.Value) string {
	var bits uint64
	for _, value := range values {
		bits |= 1 << value
	}
	return fmt.Sprintf("%016x", bits)
}

// kept returns the dataplane's capabilities that the test has.
func kept(t *testing.T) (values []cap.Value) {
	t.Helper()
	own := cap.GetProc()
	for _, value := range confine.DataplaneCapabilities {
		has, err := own.GetFlag(cap.Permitted, value)
		if err != nil {
			t.Fatal(err)
		}
		if has {
			values = append(values, value)
		}
	}
	return values
}

// bounds returns the expected bounding set: empty if the process may empty it.
func bounds(t *testing.T) string {
	t.Helper()
	if may, _ := cap.GetProc().GetFlag(cap.Permitted, cap.SETPCAP); may {
		return mask(nil)
	}
	return statuses(t, os.Getpid())[0]["CapBnd"]
}

func TestDataplaneAndBrokerAreConfined(t *testing.T) {
	pid, log := start(t)
	holder := broker(t, pid)
	for process, want := range map[int]map[string]string{
		pid: {
			"NoNewPrivs": "1",
			"Seccomp":    "2",
			"CapEff":     mask(kept(t)),
			"CapPrm":     mask(kept(t)),
			"CapInh":     mask(nil),
			"CapAmb":     mask(nil),
			"CapBnd":     bounds(t),
		},
		holder: {
			"NoNewPrivs": "1",
			"Seccomp":    "2",
			"CapEff":     mask(nil),
			"CapPrm":     mask(nil),
			"CapInh":     mask(nil),
			"CapAmb":     mask(nil),
			"CapBnd":     bounds(t),
		},
	} {
		for _, status := range statuses(t, process) {
			for name, value := range want {
				if status[name] != value {
					t.Errorf("thread %s of %s: %s is %s, want %s", status["Pid"], status["Name"], name, status[name],
						value)
				}
			}
		}
	}
	if strings.Contains(log.String(), "confined") {
		t.Error(log)
	}
	if user := strings.Fields(statuses(t, holder)[0]["Uid"])[0]; os.Getuid() == 0 && hasAllUsers(t) &&
		len(user) < len("1073741824") {
		t.Errorf("the broker process runs as user %s", user)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", holder))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`Max core file size +0 +0 `, fmt.Sprintf(`Max open files +%d +%[1]d `, confine.BrokerDescriptors),
	} {
		if !regexp.MustCompile(line).Match(limits) {
			t.Errorf("no %q in\n%s", line, limits)
		}
	}
}

// hasAllUsers reports whether this user namespace has more users than root.
func hasAllUsers(t *testing.T) bool {
	t.Helper()
	users, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(string(users))) == 3 && strings.Fields(string(users))[2] == "4294967295"
}

func TestRestartedBrokerIsConfined(t *testing.T) {
	pid, _ := start(t)
	first := broker(t, pid)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	expect(t, "new broker process", func() bool { return broker(t, pid) != first })
	for _, status := range statuses(t, broker(t, pid)) {
		if status["NoNewPrivs"] != "1" || status["CapEff"] != mask(nil) {
			t.Errorf("thread %s: no_new_privs %s, capabilities %s", status["Pid"], status["NoNewPrivs"],
				status["CapEff"])
		}
	}
}

func TestConfineFalseDisablesConfinement(t *testing.T) {
	pid, log := start(t, "--confine=false")
	own := statuses(t, os.Getpid())[0]
	for _, status := range statuses(t, pid) {
		for _, name := range []string{"NoNewPrivs", "Seccomp", "CapEff", "CapBnd"} {
			if status[name] != own[name] {
				t.Errorf("%s is %s; the test has %s", name, status[name], own[name])
			}
		}
	}
	expect(t, "warnings of both processes", func() bool {
		return strings.Count(log.String(), "process is not confined") == 2
	})
}

func TestWorkersHaveNamedThreads(t *testing.T) {
	pid, _ := start(t) // with three workers
	expect(t, "worker threads", func() bool {
		var names []string
		for _, status := range statuses(t, pid) {
			if strings.HasPrefix(status["Name"], forward.WorkerThreads) {
				names = append(names, status["Name"])
			}
		}
		slices.Sort(names)
		return slices.Equal(names, []string{"weft_wk_0", "weft_wk_1", "weft_wk_2"}) &&
			statuses(t, pid)[0]["Name"] == "weft-vswitch"
	})
}
