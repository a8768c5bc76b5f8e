package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/weftnet/weft/cni/cnitest"
	"github.com/weftnet/weft/proto/deletequeue"
	"github.com/weftnet/weft/test/stopwatch"
)

// runPlugin runs the binary and returns its error, and the time that it took without that of a stalled machine.
func runPlugin(t *testing.T, command, dir string) (*types.Error, time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "weft-cni"))
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/blue",
		"CNI_PATH=/opt/cni/bin",
		PathsVariable + "=" + PathsFromConfiguration,
	}
	cmd.Stdin = bytes.NewBufferString(fmt.Sprintf(
		`{"cniVersion":"1.1.0","name":"weft","type":"weft-cni","socket":%q,"deleteQueue":%q}`,
		filepath.Join(dir, "agent.sock"), filepath.Join(dir, "queue")))
	var out []byte
	var runErr error
	took := stopwatch.Time(func() { out, runErr = cmd.Output() })
	if runErr == nil {
		return nil, took
	}
	var e types.Error
	if err := json.Unmarshal(out, &e); err != nil {
		t.Fatalf("%s printed %q, which is not an error: %v", command, out, err)
	}
	return &e, took
}

// TestTimesWithoutAnAgent checks the documented times without an agent, or with one that does not answer. An ADD waits
// for dialTimeout, 2 s; the start and the end of the program come on top.
func TestTimesWithoutAnAgent(t *testing.T) {
	tests := []struct {
		name, command string
		hangs         bool
		code          uint
		most          time.Duration
	}{
		{"an ADD while the agent is down", "ADD", false, 11, 3 * time.Second},
		{"a DEL while the agent is down", "DEL", false, 0, 2 * time.Second},
		{"a STATUS while the agent is down", "STATUS", false, 50, 2 * time.Second},
		{"a STATUS of an agent that hangs", "STATUS", true, 50, 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if tt.hangs {
				agent := &cnitest.Agent{}
				agent.Behave(cnitest.Hang)
				agent.Listen(t, filepath.Join(dir, "agent.sock"))
			}
			err, took := runPlugin(t, tt.command, dir)
			if err == nil && tt.code != 0 || err != nil && err.Code != tt.code {
				t.Errorf("answered %v, want code %d", err, tt.code)
			}
			if took > tt.most {
				t.Errorf("took %s, at most %s is allowed", took, tt.most)
			}
		})
	}
}

func TestADelThatTimesOutIsQueued(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	agent := &cnitest.Agent{}
	agent.Behave(cnitest.Hang)
	agent.Listen(t, filepath.Join(dir, "agent.sock"))
	c := callIn(dir)
	if err := del(c); err != nil {
		t.Fatal(err)
	}
	queue, err := deletequeue.Open(c.conf.DeleteQueue)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := queue.Len(); n != 1 || err != nil {
		t.Errorf("%d deletes are queued, %v", n, err)
	}
	if asked := len(agent.Requests()); asked != 2 {
		t.Errorf("the agent was asked %d times, want 2: one, and the last attempt", asked)
	}
}

func TestDelWithAFullQueueReturnsTryAgainLater(t *testing.T) {
	c := callIn(t.TempDir())
	if err := os.MkdirAll(c.conf.DeleteQueue, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range deletequeue.MaxEntries {
		if err := os.WriteFile(filepath.Join(c.conf.DeleteQueue, fmt.Sprintf("%d.json", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err, ok := errors.AsType[*types.Error](del(c)); !ok || err.Code != 11 {
		t.Errorf("got %v, want code 11", err)
	}
}

// callIn is a DEL with agent and queue in dir, and short timeouts.
func callIn(dir string) *call {
	conf := private.defaults()
	conf.Name = "weft"
	conf.Socket = filepath.Join(dir, "agent.sock")
	conf.DeleteQueue = filepath.Join(dir, "queue")
	limits := delLimits{call: 3 * time.Second, lock: 10 * time.Second, last: 3 * time.Second}
	return &call{
		plugin:  &plugin{command: "DEL", del: limits},
		CmdArgs: &skel.CmdArgs{ContainerID: "c1", IfName: "eth0"},
		conf:    conf, log: openLog(conf),
	}
}
