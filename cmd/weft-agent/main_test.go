package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// plugin is the directory of weft-cni, which is built for this run. It has the version of the test binary.
var plugin string

func TestMain(m *testing.M) {
	testscript.Main(withPlugin{m}, map[string]func(){"weft-agent": main})
}

type withPlugin struct{ *testing.M }

func (w withPlugin) Run() int {
	dir, err := os.MkdirTemp("", "weft-agent")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	plugin = dir
	build := exec.Command("go", "build", "-buildvcs=false", "-tags", "grpcnotrace", "-o",
		filepath.Join(dir, "weft-cni"), "../weft-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build weft-cni: %v\n%s", err, out)
		return 1
	}
	return w.M.Run()
}

// TestScripts runs weft-agent in scripts. Additional commands:
//
//	agent [POD...]   start a fake agent with attachments of these pods
//	await FILE       wait until a file exists
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(5 * time.Minute),
		Setup: func(env *testscript.Env) error {
			env.Setenv("PLUGIN", plugin)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"agent": startAgent, "await": await},
	})
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Lstat(ts.MkAbs(args[0])); (err != nil) == neg {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("%s: timeout", args[0])
		}
	}
}
