package ctl_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/ctl/ctltest"
)

// bundled runs weftctl bundle and returns the files of the archive, the messages and the exit code.
func bundled(
	t *testing.T, replies ctltest.Replies, args ...string,
) (files map[string]string, messages string, code int) {
	t.Helper()
	directory := t.TempDir()
	socket := filepath.Join(directory, "agent.sock")
	archive := filepath.Join(directory, "b.tar.gz")
	_, stop, err := ctltest.Serve(socket, replies)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	var out, messageBuffer bytes.Buffer
	code = ctl.Main(context.Background(), ctl.Env{Out: &out, Err: &messageBuffer},
		append(args, "bundle", "--write", archive, "--socket", socket))
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	files = make(map[string]string)
	for r := tar.NewReader(zipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, messageBuffer.String(), code
		}
		if err != nil {
			t.Fatal(err)
		}
		part, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "weft-bundle/")] = string(part)
	}
}

// A hung agent delays the command by three requests, and takes nothing that can be had without it.
func TestBundleOfAHungAgentHasABudget(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("the end of a log\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, messages, code := bundled(t, ctltest.Replies{Silent: true}, "--timeout", "200ms", "--log", log)
	if code != 1 || !strings.Contains(messages, "weftctl: the archive is incomplete: ") {
		t.Errorf("exit code %d, %s", code, messages)
	}
	if asked := strings.Count(files["errors.txt"], "did not answer within 200ms"); asked < 1 || asked > 3 {
		t.Errorf("%d requests were waited for:\n%s", asked, files["errors.txt"])
	}
	const notAsked = "objects.json: not asked: the whole command has taken 600ms; set a longer --timeout\n"
	if !strings.Contains(files["errors.txt"], notAsked) {
		t.Errorf("errors.txt:\n%s", files["errors.txt"])
	}
	for _, name := range []string{"machine.txt", "agent.log", "log-1-log"} {
		if files[name] == "" {
			t.Errorf("%s is empty", name)
		}
	}
}

func TestBundleWithAPartThatFailsIsAnError(t *testing.T) {
	files, messages, code := bundled(t, ctltest.Sample(now), "--log", filepath.Join(t.TempDir(), "absent"))
	if code != 1 || !strings.Contains(messages, "errors.txt in it lists them") {
		t.Errorf("exit code %d, %s", code, messages)
	}
	if !strings.Contains(files["errors.txt"], "log-1-absent: ") || !strings.Contains(files["state.json"], "version") {
		t.Errorf("errors.txt:\n%s\nstate.json:\n%s", files["errors.txt"], files["state.json"])
	}
}
