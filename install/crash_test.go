package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/weftnet/weft/cni/cnitest"
)

// victim is set in the environment of a process that installs and dies: what it installs, as JSON, and at which step.
const victim = "WEFT_INSTALL_VICTIM"

type doomed struct {
	Options Options
	Build   string
	Step    int // it counts the steps and dies at this one
}

// dieAtStep is the main function of the victim. Where it comes to an end before its step, that is its exit code.
func dieAtStep() int {
	var d doomed
	if err := json.Unmarshal([]byte(os.Getenv(victim)), &d); err != nil {
		return 2
	}
	i := newInstaller(d.Options, slog.New(slog.DiscardHandler), os.Stderr)
	i.build = d.Build
	i.reached = func(string) {
		if d.Step--; d.Step == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	if err := i.load(); err != nil {
		return 1
	}
	if err := i.run(context.Background()); err != nil {
		return 1
	}
	return 0
}

// die runs a victim and reports whether it died, rather than came to its end.
func (n *node) die(d doomed) bool {
	n.t.Helper()
	raw, err := json.Marshal(d)
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(n.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victim+"="+string(raw))
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return false
	case ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return true
	}
	n.t.Fatalf("the victim ended with %v: %s", err, out)
	return false
}

// sound checks what a runtime finds on the node, and that it is what one of the builds has.
func (n *node) sound() {
	n.t.Helper()
	if paths := neighbours(n.path("net.d")); len(paths) > 0 {
		conf, err := libcni.ConfListFromFile(paths[0])
		if err != nil {
			n.t.Errorf("half a configuration: %v", err)
		} else if err := libcni.NewCNIConfig([]string{n.path("bin")}, nil).GetStatusNetworkList(n.t.Context(), conf); err != nil {
			n.t.Errorf("a configuration that cannot be served: %v", err)
		}
	}
	if n.has("bin/weft-cni") {
		now := []byte(n.read("bin/weft-cni"))
		whole := false
		for _, build := range []string{"this.d", "next.d"} {
			raw, err := os.ReadFile(filepath.Join(built, build, program))
			whole = whole || err == nil && bytes.Equal(raw, now)
		}
		if !whole {
			n.t.Errorf("half a program, %d bytes", len(now))
		}
	}
}

// rows: AWS-03, AWS-31
func TestANodeIsSoundWheneverTheInstallerDies(t *testing.T) {
	tests := []plan{
		{"on a fresh node", func(*node) {}, func(*Options) {}, thisBuild},
		{"in an upgrade", func(n *node) { n.install() }, func(o *Options) { next(o); o.LogFile = "/var/log/weft-cni.log" }, nextBuild},
	}
	for _, p := range tests {
		t.Run(p.name, func(t *testing.T) {
			steps := 0
			for died := true; died; steps++ {
				t.Run(strconv.Itoa(steps+1), func(t *testing.T) { died = p.killAt(t, steps+1) })
			}
			if steps < 13 { // six for each of two files, and the last one, which came to its end
				t.Errorf("only %d steps were tried", steps)
			}
		})
	}
}

// plan is an installation that will be killed.
type plan struct {
	name    string
	prepare func(n *node)
	change  func(*Options)
	build   string
}

// killAt kills an installer at one step, looks at the node, and has another one finish. It reports whether there was
// that step.
func (p plan) killAt(t *testing.T, step int) (died bool) {
	n := newNode(t, cnitest.Serve)
	p.prepare(n)
	o := n.options()
	p.change(&o)
	died = n.die(doomed{Options: o, Build: p.build, Step: step})
	n.sound()
	n.install(p.change)
	n.sound()
	if got := n.entries("bin") + " " + n.entries("net.d"); got != "weft-cni weft-ipam 10-weft.conflist" {
		t.Errorf("another installer leaves: %s", got)
	}
	if said, err := (plugin{n.path("bin/weft-cni")}).version(t.Context()); said != p.build {
		t.Errorf("installed is %q (%v), want %q", said, err, p.build)
	}
	if strings.Contains(p.build, "v9") != strings.Contains(n.read("net.d/10-weft.conflist"), "logFile") {
		t.Errorf("the configuration is another build's:\n%s", n.read("net.d/10-weft.conflist"))
	}
	return died
}
