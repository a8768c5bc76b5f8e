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

// orders are what an attacker is told: a process of its own, so that it takes no time of those that measure.
type orders struct {
	Attack    string
	Netns     string       // path of the pod's namespace
	Socket    string       // of the pod's first memif
	Secret    string       // of the pod's container
	Address   netip.Addr   // of the pod's first memif
	Neighbour netip.Prefix // of a victim's main interface, with the length of the subnet
}

// campaign is what a method gets.
type campaign struct {
	orders
	underWay func() // is called once the attack is under way, and may be again
}

// ordersVariable marks an attacker's process.
const ordersVariable = "WEFT_ATTACKER"

// attacking is said by an attacker once its attack is under way.
const attacking = "attacking"

func isAttacker() bool { return os.Getenv(ordersVariable) != "" }

// beAttacker attacks until the process is told to end. It leaves the processors to others: what is measured is the dataplane, and not
// which process the machine's scheduler prefers.
func beAttacker() {
	var o orders
	err := json.Unmarshal([]byte(os.Getenv(ordersVariable)), &o)
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, 19)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var once sync.Once
	if err == nil {
		err = methods[o.Attack](ctx, campaign{o, func() { once.Do(func() { fmt.Println(attacking) }) }})
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

	mu   sync.Mutex
	said strings.Builder
}

// Write takes what the process says.
func (a *attacker) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.said.Write(p)
}

// lines are what the attacker has said.
func (a *attacker) lines() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Split(strings.TrimSuffix(a.said.String(), "\n"), "\n")
}

// start starts an attacker and waits until it attacks.
func start(ctx context.Context, o orders) (*attacker, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	a := &attacker{Cmd: exec.Command("/proc/self/exe"), ended: make(chan struct{})} //nolint:noctx // end ends it
	a.Env = append(os.Environ(), ordersVariable+"="+string(text))
	a.Stdout, a.Stderr = a, io.Discard
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
			err = fmt.Errorf("the attacker ended: %s", strings.Join(a.lines(), "; "))
		case <-deadline:
			err = fmt.Errorf("the attacker does not attack within a minute: %s", strings.Join(a.lines(), "; "))
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
