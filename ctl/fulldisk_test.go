package ctl_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/ctl/ctltest"
)

// fullDisk takes some bytes.
type fullDisk struct{ left int }

func (d *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), d.left)
	d.left -= n
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// onDisk runs a command whose output is on a disk with some free bytes.
func onDisk(ctx context.Context, t *testing.T, free int, args ...string) (messages string, code int) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	replies := ctltest.Sample(now)
	replies.Empty = true
	_, stop, err := ctltest.Serve(socket, replies)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	var errors bytes.Buffer
	env := ctl.Env{Out: &fullDisk{free}, Err: &errors, Now: func() time.Time { return now }}
	code = ctl.Main(ctx, env, append(args, "--socket", socket))
	return errors.String(), code
}

func TestOutputThatIsNotWrittenIsAnError(t *testing.T) {
	commands := commandLines(t, documents, documentsOnly, other)
	for _, text := range []string{"completion bash", "help"} {
		commands = append(commands, commandLine{invocation{prints: other}, "", text})
	}
	for _, command := range commands {
		for _, free := range []int{0, 1} {
			for _, format := range []string{"table", "json", "yaml"} {
				if format == "table" && command.prints == documentsOnly {
					continue
				}
				messages, code := onDisk(t.Context(), t, free, append(strings.Fields(command.text), "-o", format)...)
				if code != 1 ||
					!strings.HasSuffix(messages, "weftctl: the output is incomplete: no space left on device\n") {
					t.Errorf("%s -o %s with %d free bytes: exit code %d, %q", command.text, format, free, code, messages)
				}
			}
		}
	}
}

// The agent sends nothing more, so that only the failed write ends the command.
func TestFollowedEventsEndOnAFullDisk(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	messages, code := onDisk(ctx, t, 10, "events", "--follow")
	if ctx.Err() != nil || code != 1 || !strings.Contains(messages, "no space left") {
		t.Errorf("exit code %d, %q", code, messages)
	}
}
