package stage

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// go test buffers the output of a package while it tests several, and a kept cluster does not end.
func TestKeptClusterIsPrintedAlthoughGoTestBuffers(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	cmd := exec.CommandContext(context.Background(), "go", "test", "-count=1", "-v", "./testdata/kept",
		"./testdata/other")
	cmd.Env = append(os.Environ(), "WEFT_E2E_SEEN="+seen)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = cmd.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.WriteFile(seen, nil, 0o600)
		rest, _ := io.ReadAll(out)
		if err := cmd.Wait(); err != nil || !strings.Contains(string(rest), "buffered") {
			t.Errorf("go test: %v, then it printed\n%s", err, rest)
		}
	})
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
			if strings.Contains(s.Text(), "-timeout 25m0s") {
				return
			}
		}
	}()
	var text []string
	for limit := time.After(2 * time.Minute); ; {
		select {
		case line, more := <-lines:
			if more {
				text = append(text, line)
				continue
			}
		case <-limit:
			_ = os.WriteFile(seen, nil, 0o600)
			t.Fatalf("while the tests run, the last line printed is %q", text)
		}
		break
	}
	for _, want := range []string{
		"  one command:  nsenter --all --target 4711 env KUBECONFIG=/k/admin.conf /p/kubectl get pods --all-namespaces",
		"  a shell:      nsenter --all --target 4711 env KUBECONFIG=/k/admin.conf PATH=/p:$PATH bash    # with kubectl",
		"  stop it:      kill 4711                     # or interrupt this run",
	} {
		if !slices.Contains(text, want) {
			t.Errorf("no line %q in %q", want, text)
		}
	}
	if slices.Contains(text, "buffered") {
		t.Error("go test did not buffer, so this test has no effect")
	}
}
