package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// target says what an attacker attacks. An attacker is a process of its own, so that it takes no processor time of the
// measurement.
type target struct {
	Attack    string
	Netns     string       // path of the pod's namespace
	Socket    string       // of the pod's first memif
	Secret    string       // of the pod's container
	Address   netip.Addr   // of the pod's first memif
	Neighbour netip.Prefix // of a victim's main interface, with the length of the subnet
}

// job is the argument of a method.
type job struct {
	target
	underWay func() // a method calls it, once or more, when its attack has started
}

// targetVariable is set in an attacker's process: its target as JSON.
const targetVariable = "WEFT_ATTACKER"

// attacking is the line that an attacker prints when its attack has started.
const attacking = "attacking"

func isAttacker() bool { return os.Getenv(targetVariable) != "" }

// beAttacker attacks until the process gets SIGTERM. Its priority is low, because the dataplane is measured and not the
// machine's scheduler.
func beAttacker() {
	var o target
	err := json.Unmarshal([]byte(os.Getenv(targetVariable)), &o)
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, 19)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var once sync.Once
	if err == nil {
		err = methods[o.Attack](ctx, job{o, func() { once.Do(func() { fmt.Println(attacking) }) }})
	}
	if err != nil && ctx.Err() == nil {
		fmt.Println("error:", err)
		stop()
		os.Exit(1)
	}
}

// attacker is an attacker's process.
type attacker struct {
	*exec.Cmd
	ended chan struct{}

	mu     sync.Mutex
	output strings.Builder
}

// Write records what the process prints.
func (a *attacker) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.output.Write(p)
}

// lines returns the lines that the attacker printed so far.
func (a *attacker) lines() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Split(strings.TrimSuffix(a.output.String(), "\n"), "\n")
}

// start starts an attacker and waits until it attacks.
func start(ctx context.Context, t target) (*attacker, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	a := &attacker{Cmd: exec.Command("/proc/self/exe"), ended: make(chan struct{})} //nolint:noctx // end ends it
	a.Env = append(os.Environ(), targetVariable+"="+string(text))
	a.Stdout = a
	a.Stderr = io.Discard
	if err := a.Start(); err != nil {
		return nil, fmt.Errorf("start attacker: %w", err)
	}
	go func() { defer close(a.ended); _ = a.Wait() }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		for _, line := range a.lines() {
			if line == attacking {
				return a, nil
			}
		}
		select {
		case <-tick.C:
			continue
		case <-a.ended:
			err = fmt.Errorf("the attacker exited: %s", strings.Join(a.lines(), "; "))
		case <-deadline:
			err = fmt.Errorf("the attacker did not start to attack within a minute: %s", strings.Join(a.lines(), "; "))
		case <-ctx.Done():
			err = ctx.Err()
		}
		a.end()
		return nil, err
	}
}

// end kills the attacker.
func (a *attacker) end() {
	_ = a.Process.Kill()
	<-a.ended
}
