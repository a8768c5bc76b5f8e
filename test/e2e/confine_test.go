package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// status has the lines of a process's status file, by name.
type status map[string]string

// statuses returns the status of all threads of a node's processes with the given prefix of their command line.
func (s *space) statuses(node, command string) (all []status) {
	s.t.Helper()
	s.must(s.c.Node(node).Do(func() error {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			line, _ := os.ReadFile(file) // the process may have ended
			if !strings.HasPrefix(strings.ReplaceAll(string(line), "\x00", " "), command) {
				continue
			}
			threads, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "task/*/status"))
			for _, thread := range threads {
				text, err := os.ReadFile(thread)
				if err != nil {
					continue
				}
				one := status{}
				for line := range strings.Lines(string(text)) {
					name, value, _ := strings.Cut(line, ":")
					one[name] = strings.TrimSpace(value)
				}
				all = append(all, one)
			}
		}
		return err
	}))
	if len(all) == 0 {
		s.t.Fatalf("%s: no process %s", node, command)
	}
	return all
}

// Kubelet and the runtime grant the rights of the manifests, and the programs drop the rest.
func TestProgramsOfANodeAreConfined(t *testing.T) {
	needWeft(t)
	if os.Getenv("WEFT_VPP") != "" {
		t.Skip("needs weft-vswitch as the dataplane")
	}
	s := newSpace(t)
	const none = "0000000000000000"
	vswitch := "/usr/local/bin/weft-vswitch"
	broker := vswitch + " memif-broker"
	for _, process := range []struct {
		command string
		want    status
	}{
		{
			vswitch + " --api-socket",
			status{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "00000000002030e2", "CapBnd": none},
		},
		{broker, status{"NoNewPrivs": "1", "Seccomp": "2", "CapPrm": none, "CapEff": none, "CapBnd": none}},
		{"/usr/local/bin/weft-agent run", status{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "00000000002038fb"}},
		{
			"/usr/local/bin/weft-agent install",
			status{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": none, "CapBnd": none},
		},
	} {
		for _, thread := range s.statuses("n1", process.command) {
			for name, value := range process.want {
				if thread[name] != value {
					t.Errorf("%s: %s is %s, want %s", process.command, name, thread[name], value)
				}
			}
		}
	}
	if user := s.statuses("n1", broker)[0]["Uid"]; strings.HasPrefix(user, "0\t") {
		t.Errorf("the broker runs as user %s", user)
	}
}
