package main

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weftnet/weft/vswitch"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weft-vswitch": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(5 * time.Minute),
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"await":   await,
			"answers": answers,
			"is":      is,
			"signal":  signalHolder,
		},
	})
}

// await waits until a file exists, with ! until it does not exist.
func await(ts *testscript.TestScript, neg bool, args []string) {
	eventually(ts, args[0], func() bool {
		_, err := os.Lstat(ts.MkAbs(args[0]))
		return (err != nil) == neg
	})
}

// answers waits until a process listens on a socket.
func answers(ts *testscript.TestScript, _ bool, args []string) {
	eventually(ts, args[0], func() bool {
		conn, err := net.Dial("unix", ts.MkAbs(args[0]))
		return err == nil && conn.Close() == nil
	})
}

// is waits until the active or standby process of a socket has the given name.
func is(ts *testscript.TestScript, _ bool, args []string) {
	role := args[0]
	socket := ts.MkAbs(args[1])
	name := args[2]
	eventually(ts, name+" is "+role, func() bool {
		s := vswitch.StatusOf(context.Background(), socket)
		holder := map[string]*vswitch.Holder{"active": s.Active, "standby": s.Standby}[role]
		return holder != nil && holder.Name == name
	})
}

func eventually(ts *testscript.TestScript, what string, expected func() bool) {
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !expected() {
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("%s: timeout", what)
		}
	}
}

// signalHolder sends a signal to the process in a lock file.
func signalHolder(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]syscall.Signal{
		"HUP":  syscall.SIGHUP,
		"PIPE": syscall.SIGPIPE,
		"TERM": syscall.SIGTERM,
		"KILL": syscall.SIGKILL,
	}
	text, _, _ := strings.Cut(ts.ReadFile(args[1]), "\n")
	pid, err := strconv.Atoi(text)
	ts.Check(err)
	ts.Check(syscall.Kill(pid, signals[args[0]]))
}
