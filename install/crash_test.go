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

// victimEnv is the environment variable of a process that runs a victim, given as JSON.
const victimEnv = "WEFT_INSTALL_VICTIM"

// victim is an installer that kills itself.
type victim struct {
	Options Options
	Build   string
	Step    int // number of the step at which it kills itself
}

// runVictim is the main function of the process. It returns the exit code of a victim that ended before its step.
func runVictim() int {
	var v victim
	if err := json.Unmarshal([]byte(os.Getenv(victimEnv)), &v); err != nil {
		return 2
	}
	i := newInstaller(v.Options, slog.New(slog.DiscardHandler), os.Stderr)
	i.programs.build = v.Build
	i.files.reached = func(string) {
		if v.Step--; v.Step == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	if err := i.programs.load(); err != nil {
		return 1
	}
	if err := i.run(context.Background()); err != nil {
		return 1
	}
	return 0
}

// kill runs a victim and reports whether it killed itself before its end.
func (n *node) kill(v victim) bool {
	n.t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(n.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+string(raw))
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

// checkSettings checks that the settings of the plugin are those of one installer or of the other.
func (n *node) checkSettings() {
	n.t.Helper()
	if !n.has("bin/weft-cni.json") {
		return
	}
	var settings NodeSettings
	if err := json.Unmarshal([]byte(n.read("bin/weft-cni.json")), &settings); err != nil {
		n.t.Errorf("incomplete settings: %v", err)
	}
	if settings.Socket != n.path("run/agent.sock") || settings.LogFile != "" && settings.LogFile != logFile {
		n.t.Errorf("settings %+v", settings)
	}
}

// logFile is that of an upgrade.
const logFile = "/var/log/weft-cni.log"

// checkValid checks the first configuration with the runtime's library, the settings, and that weft-cni is complete.
func (n *node) checkValid() {
	n.t.Helper()
	n.checkSettings()
	if paths := configurations(n.path("net.d")); len(paths) > 0 {
		conf, err := libcni.ConfListFromFile(paths[0])
		if err != nil {
			n.t.Errorf("incomplete configuration: %v", err)
		} else if err := libcni.NewCNIConfig([]string{n.path("bin")}, nil).GetStatusNetworkList(n.t.Context(),
			conf); err != nil {
			n.t.Errorf("STATUS of the configuration: %v", err)
		}
	}
	if n.has("bin/weft-cni") {
		now := []byte(n.read("bin/weft-cni"))
		complete := false
		for _, build := range []string{"this.d", "next.d"} {
			raw, err := os.ReadFile(filepath.Join(built, build, program))
			complete = complete || err == nil && bytes.Equal(raw, now)
		}
		if !complete {
			n.t.Errorf("incomplete program, %d bytes", len(now))
		}
	}
}

func TestANodeIsValidIfTheInstallerIsKilled(t *testing.T) {
	tests := []plan{
		{"on a fresh node", func(*node) {}, func(*Options) {}, thisBuild},
		{
			"during an upgrade", func(n *node) { n.install() }, func(o *Options) { next(o); o.LogFile = logFile },
			nextBuild,
		},
	}
	for _, p := range tests {
		t.Run(p.name, func(t *testing.T) {
			steps := 0
			for killed := true; killed; steps++ {
				t.Run(strconv.Itoa(steps+1), func(t *testing.T) { killed = p.killAt(t, steps+1) })
			}
			if steps < 19 { // six for each of three files, and one that ended normally
				t.Errorf("only %d steps", steps)
			}
		})
	}
}

// plan is an installation that is killed.
type plan struct {
	name    string
	prepare func(n *node)
	change  func(*Options)
	build   string
}

// killAt kills an installer at one step, checks the node, and runs another installer to its end. It reports whether the
// first one reached the step.
func (p plan) killAt(t *testing.T, step int) (killed bool) {
	n := newNode(t, cnitest.Serve)
	p.prepare(n)
	o := n.options()
	p.change(&o)
	killed = n.kill(victim{Options: o, Build: p.build, Step: step})
	n.checkValid()
	n.install(p.change)
	n.checkValid()
	if got := n.entries("bin") + " " + n.entries("net.d"); got != "weft-cni weft-cni.json weft-ipam 10-weft.conflist" {
		t.Errorf("after another installer: %s", got)
	}
	if build, err := (plugin{n.path("bin/weft-cni")}).build(t.Context()); build != p.build {
		t.Errorf("installed build %q (%v), want %q", build, err, p.build)
	}
	if strings.Contains(p.build, "v9") != strings.Contains(n.read("net.d/10-weft.conflist"), "logFile") {
		t.Errorf("the configuration is of another build:\n%s", n.read("net.d/10-weft.conflist"))
	}
	return killed
}
