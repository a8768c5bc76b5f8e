package ctl_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/ctl/ctltest"
	"github.com/weftnet/weft/k8s/k8stest"
)

// writers are the commands with a file.
var writers = []string{"bundle", "profile heap", "capture default/a eth0"}

// writes is writesTo without the output.
func writes(t *testing.T, command, file string) (messages string, code int) {
	t.Helper()
	_, messages, code = writesTo(t, command, file)
	return messages, code
}

// writesTo runs a command of an agent, which also has the socket for profiles.
func writesTo(t *testing.T, command, file string) (output, messages string, code int) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	_, stop, err := ctltest.Serve(socket, ctltest.Sample(now))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	listener, err := net.Listen("unix", filepath.Join(filepath.Dir(socket), "debug.sock"))
	if err != nil {
		t.Fatal(err)
	}
	profiles := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a profile")
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = profiles.Serve(listener) // returns after Close
	}()
	t.Cleanup(func() {
		_ = profiles.Close()
		<-ended
	})
	var out, failures bytes.Buffer
	env := ctl.Env{Out: &out, Err: &failures, Now: func() time.Time { return now }}
	code, err = checkedMain(t.Context(), env, append(strings.Fields(command), "--write", file, "--socket", socket))
	if err != nil {
		t.Error(err)
	}
	return out.String(), failures.String(), code
}

// answersWith is a weftctl on a node that prints some bytes.
func answersWith(bytes string, code int) func(string, k8stest.Exec) int {
	return func(_ string, x k8stest.Exec) int {
		_, _ = io.WriteString(x.Out, bytes)
		return code
	}
}

func TestFileThatIsNotWrittenIsAnError(t *testing.T) {
	for _, command := range writers {
		t.Run(command, func(t *testing.T) {
			if messages, code := writes(t, command, "/dev/full"); code != 1 ||
				!strings.Contains(messages, "no space left on device") {
				t.Errorf("exit code %d, messages %s", code, messages)
			}
		})
		t.Run(command+" of a node", func(t *testing.T) {
			a := newAgents(t, answersWith("some bytes", 0), "n1")
			line := append(strings.Fields(command), "--node", "n1", "--write", "/dev/full")
			if _, messages, code := a.run(true, line...); code != 1 ||
				!strings.Contains(messages, "no space left on device") || strings.Contains(messages, "did not answer") {
				t.Errorf("exit code %d, messages %s", code, messages)
			}
		})
	}
}

// content returns the content of a file, and the other names in its directory.
func content(t *testing.T, file string) (text string, others []string) {
	t.Helper()
	there, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range there {
		if e.Name() != filepath.Base(file) {
			others = append(others, e.Name())
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	return text, others
}

// The error names the path once, and nothing is said about a file that was never there.
func TestFileInAMissingDirectoryIsOneError(t *testing.T) {
	for _, command := range writers {
		file := filepath.Join(t.TempDir(), "missing", "file")
		messages, code := writes(t, command, file)
		want := "open " + file + ": no such file or directory\n"
		if code != 1 || !strings.HasSuffix(messages, want) || strings.Count(messages, "\n") != 1 {
			t.Errorf("%s: exit code %d: %s", command, code, messages)
		}
	}
}

func TestExistingFileIsKept(t *testing.T) {
	for _, command := range writers {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		a := newAgents(t, answersWith("some bytes", 0), "n1")
		_, remote, code := a.run(true, append(strings.Fields(command), "--node", "n1", "--write", file)...)
		if code != 1 || !strings.Contains(remote, file+" exists; choose another --write") || len(a.ran()) > 0 {
			t.Errorf("%s of a node: exit code %d, %d runs on nodes, messages %s", command, code, len(a.ran()), remote)
		}
		if local, code := writes(t, command, file); code != 1 ||
			!strings.Contains(local, file+" exists; choose another --write") {
			t.Errorf("%s: exit code %d, messages %s", command, code, local)
		}
		if text, others := content(t, file); text != "precious" || len(others) > 0 {
			t.Errorf("%s: the file has %q, beside it are %q", command, text, others)
		}
	}
}

func TestFileOfANode(t *testing.T) {
	for name, tt := range map[string]struct {
		command, answer string
		code            int // of weftctl on the node
		want            string
	}{
		"is complete when the command ends": {"bundle", "an archive", 0, "an archive"},
		"is kept if the command reports problems": {
			"bundle", "an archive with errors.txt", 1, "an archive with errors.txt",
		},
		"is not there if the command wrote none": {"bundle", "", 1, ""},
		"of a capture has what arrived":          {"capture default/a eth0", "packets", 1, "packets"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgents(t, answersWith(tt.answer, tt.code), "n1")
			file := filepath.Join(t.TempDir(), "file")
			_, messages, code := a.run(true, append(strings.Fields(tt.command), "--node", "n1", "--write", file)...)
			text, others := content(t, file)
			if text != tt.want || len(others) > 0 || code != tt.code {
				t.Errorf("exit code %d, the file has %q, beside it are %q, messages %s", code, text, others, messages)
			}
			if info, err := os.Stat(file); tt.want != "" && (err != nil || info.Mode() != 0o600) {
				t.Errorf("file %v, error %v", info, err)
			}
		})
	}
}

// A node may end its connection in the middle of an archive.
func TestIncompleteFileOfANodeIsRemoved(t *testing.T) {
	hang := make(chan struct{})
	a := newAgents(t, func(_ string, x k8stest.Exec) int {
		_, _ = io.WriteString(x.Out, "half of an archive")
		<-hang
		return 0
	}, "n1")
	defer close(hang)
	file := filepath.Join(t.TempDir(), "file")
	_, messages, code := a.run(true, "bundle", "--node", "n1", "--write", file, "--node-timeout", "1s")
	if text, others := content(t, file); code != 1 || text != "" || len(others) > 0 ||
		!strings.Contains(messages, "did not answer") {
		t.Errorf("exit code %d, the file has %q, beside it are %q, messages %s", code, text, others, messages)
	}
}

func TestProfileIsReportedAsADocument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "heap.pprof")
	for format, want := range map[string]string{
		"json":  "{\n  \"bytes\": 9,\n  \"file\": \"" + file + "\"\n}\n",
		"table": "9 bytes written to " + file + "\n",
	} {
		if got, messages, code := writesTo(t, "profile heap -o "+format, file); got != want || code != 0 {
			t.Errorf("%s: exit code %d, messages %s\n%s", format, code, messages, got)
		}
		if text, _ := content(t, file); text != "a profile" || os.Remove(file) != nil {
			t.Errorf("the file has %q", text)
		}
	}
}
