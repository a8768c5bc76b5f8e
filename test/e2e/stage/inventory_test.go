package stage

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestCompareNamesLeftoversOfARun(t *testing.T) {
	cases := map[string]struct {
		leave func(t *testing.T, s Stage) (name string)
		keep  bool
	}{
		"a directory": {leave: func(t *testing.T, s Stage) string {
			if err := os.MkdirAll(s.Logs(), 0o755); err != nil {
				t.Fatal(err)
			}
			return "directory " + s.Dir
		}},
		"a process": {leave: func(t *testing.T, s Stage) string {
			cmd := exec.Command("sleep", "60")
			cmd.Env = []string{variable + "=" + s.Dir}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			return "process " + strconv.Itoa(cmd.Process.Pid)
		}},
		"a cgroup": {leave: func(t *testing.T, s Stage) string {
			hierarchy := filepath.Join(cgroupMount, "pids")
			if _, err := os.Stat(hierarchy); err != nil {
				hierarchy = cgroupMount
			}
			cgroup := filepath.Join(hierarchy, s.Name())
			if err := os.Mkdir(cgroup, 0o755); err != nil {
				t.Skip("this needs leave to make cgroups:", err)
			}
			t.Cleanup(func() { _ = os.Remove(cgroup) })
			return "cgroup " + cgroup
		}},
		"logs that are wanted": {keep: true, leave: func(t *testing.T, s Stage) string {
			if err := os.MkdirAll(s.Logs(), 0o755); err != nil {
				t.Fatal(err)
			}
			return ""
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := Stage{Dir: filepath.Join(t.TempDir(), prefix+"test-"+strconv.Itoa(os.Getpid()))}
			before, err := takeInventory()
			if err != nil {
				t.Fatal(err)
			}
			want := c.leave(t, s)
			err = before.compare(s, c.keep)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}

func TestNewSettingIsALeftover(t *testing.T) {
	now, err := takeInventory()
	if err != nil {
		t.Fatal(err)
	}
	for object := range now {
		if strings.HasPrefix(object, "setting kernel/panic ") {
			delete(now, object)
		}
	}
	if err := now.compare(Stage{Dir: filepath.Join(t.TempDir(), "none")}, false); err == nil ||
		!strings.Contains(err.Error(), "kernel/panic") {
		t.Errorf("got %v", err)
	}
}

func TestSweepRemovesDeadRunsOnly(t *testing.T) {
	dir := t.TempDir()
	const beyond = 1 << 30 // no process has such a number
	dead := filepath.Join(dir, prefix+strconv.Itoa(beyond))
	alive := filepath.Join(dir, prefix+strconv.Itoa(os.Getpid()))
	for _, run := range []string{dead, alive} {
		if err := os.MkdirAll(Stage{Dir: run}.Logs(), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := sweep(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); err == nil {
		t.Error("the directory of the dead run exists")
	}
	if _, err := os.Stat(alive); err != nil {
		t.Error("the directory of the living run is gone")
	}
}
