package stage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Unbuffered returns a writer to the standard error of the go command, if that runs this program. go test buffers the
// output of each package until its end when it tests several. Call it before Settle, which hides the host's processes.
func Unbuffered() *os.File {
	pid := "self"
	for pid != "0" && pid != "" {
		if name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm")); string(bytes.TrimSpace(name)) == "go" {
			if f, err := os.OpenFile(filepath.Join("/proc", pid, "fd/2"), os.O_WRONLY|os.O_APPEND, 0); err == nil {
				return f
			}
			break // may be a socket
		}
		pid = parent(pid)
	}
	return os.Stderr
}

// parent returns the parent process; "" if there is none.
func parent(pid string) string {
	status, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); name == "PPid" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Kept describes a cluster that keeps running after the tests.
type Kept struct {
	PID        string // of the first process of the stage, on the host
	Kubeconfig string
	Kubectl    string // path of the program
	Timeout    string // of go test; "0s" = none
}

// String returns the commands to enter and to stop the cluster.
func (k Kept) String() string {
	enter := fmt.Sprintf("nsenter --all --target %s env KUBECONFIG=%s", k.PID, k.Kubeconfig)
	text := fmt.Sprintf(`
e2e: the cluster stays until it is stopped (WEFT_E2E_KEEP). As root on this machine:
  one command:  %s %s get pods --all-namespaces
  a shell:      %[1]s PATH=%[3]s:$PATH bash    # with kubectl
  stop it:      kill %[4]s                     # or interrupt this run
`, enter, k.Kubectl, filepath.Dir(k.Kubectl), k.PID)
	if k.Timeout != "0s" {
		text += fmt.Sprintf("  go test -timeout %s stops it too; make e2e sets no limit if WEFT_E2E_KEEP is set\n",
			k.Timeout)
	}
	return text
}
