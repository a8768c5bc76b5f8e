package ctl_test

import (
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/k8s/k8stest"
)

// hostile sets the title of a terminal, and moves its cursor up to overwrite what another node said.
const hostile = "\x1b]0;title\x07\x1b[1A\u009b2Kall nodes are ready, gr\u00fcn\n"

const harmless = "\ufffd]0;title\ufffd\ufffd[1A\ufffd2Kall nodes are ready, gr\u00fcn\n"

// tells writes the text to both outputs, in pieces that divide characters.
func tells(text string) func(string, k8stest.Exec) int {
	return func(_ string, x k8stest.Exec) int {
		for i := range len(text) {
			_, _ = io.WriteString(x.Out, text[i:i+1])
		}
		_, _ = io.WriteString(x.Err, text)
		return 0
	}
}

func TestControlCharactersOfNodesDoNotReachTheTerminal(t *testing.T) {
	a := newAgents(t, tells(hostile), "n1", "n2")
	for _, line := range []string{"devices --all-nodes", "events -f --all-nodes"} {
		out, failures, _ := a.run(false, strings.Fields(line)...)
		for name, text := range map[string]string{"output": out, "errors": failures} {
			if strings.ContainsAny(text, "\x1b\x07\u009b") || strings.Count(text, "gr\u00fcn\n") != 2 {
				t.Errorf("%s: %s %q", line, name, text)
			}
		}
	}
	terminal, screen := newTerminal(t)
	code := ctl.Main(t.Context(), ctl.Env{In: strings.NewReader(""), Out: screen, Err: io.Discard}, []string{
		"devices", "--node", "n1", "--kubeconfig", a.kubeconfig,
	})
	got := make([]byte, 200)
	n, err := terminal.Read(got)
	for err == nil && !strings.Contains(string(got[:n]), "\n") {
		var more int
		more, err = terminal.Read(got[n:])
		n += more
	}
	if code != 0 || err != nil || string(got[:n]) != harmless {
		t.Errorf("exit code %d, %v: the terminal gets %q", code, err, got[:n])
	}
}

// Errors contain texts of the agent and of the API server, and names from the command line.
func TestControlCharactersOfErrorsDoNotReachTheTerminal(t *testing.T) {
	var failures strings.Builder
	socket := t.TempDir() + "/\x1b[2J\u202e\rnone"
	code := ctl.Main(t.Context(), ctl.Env{Out: io.Discard, Err: &failures}, []string{"devices", "--socket", socket})
	if text := failures.String(); code == 0 || !strings.Contains(text, "\ufffd[2J\ufffd\ufffdnone") ||
		strings.ContainsAny(text, "\x1b\r\u202e") {
		t.Errorf("exit code %d, errors %q", code, text)
	}
}

// A capture is bytes for a file or another program. A pipe gets it, and the error without an agent shows that it was
// tried.
func TestCaptureDoesNotPrintBytesOnATerminal(t *testing.T) {
	_, screen := newTerminal(t)
	pipe, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	for out, want := range map[*os.File]string{
		screen: `the standard output is a terminal: give a file, or pipe the packets to "tcpdump -n -r -"`,
		pipe:   "no agent answers",
	} {
		var failures strings.Builder
		code := ctl.Main(t.Context(), ctl.Env{Out: out, Err: &failures}, []string{
			"capture", "shop/cart", "eth0", "-w", "-", "--socket", t.TempDir() + "/none",
		})
		if code == 0 || !strings.Contains(failures.String(), want) {
			t.Errorf("exit code %d, %q, want %q", code, failures.String(), want)
		}
	}
}

// newTerminal returns both ends of a pseudo-terminal that passes its output on unchanged.
func newTerminal(t *testing.T) (terminal, screen *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminal: ", err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	n, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminal: ", err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	mode, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(screen.Fd()), unix.TCSETS, mode); err != nil {
		t.Fatal(err)
	}
	return terminal, screen
}

func TestControlCharactersOfNodesDoNotReachTheTerminalInDocuments(t *testing.T) {
	a := newAgents(t, tells("{\"pod\": \"gr\u00fcn\u009b2K\u007f \xff\"}\n"), "n1", "n2")
	for _, line := range []string{
		"devices --all-nodes -o json", "devices --all-nodes -o yaml", "events -f --all-nodes -o json",
		"events -f --all-nodes -o yaml",
	} {
		out, _, _ := a.run(false, strings.Fields(line)...)
		if strings.ContainsAny(out, "\u009b\u007f") || !utf8.ValidString(out) || strings.Count(out, "gr\u00fcn") != 2 {
			t.Errorf("%s: %q", line, out)
		}
	}
}
