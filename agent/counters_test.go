package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// counterReply is the output of weftctl counters.
type counterReply struct {
	Interfaces []struct {
		Pod                  struct{ Name string }
		Interface            string
		RxPackets, TxPackets uint64
	}
	Errors []struct {
		Node, Reason string
		Count        uint64
	}
}

// counts returns an error unless weftctl counters has packets of a pod in both directions, and the given error
// counters.
func (l *lab) counts(name string, reasons ...string) error {
	text, err := l.Weftctl(l.Context(), "counters", "-o", "json")
	if err != nil {
		return err
	}
	var reply counterReply
	l.ctl(&reply, "counters")
	for _, reason := range reasons {
		if !strings.Contains(text, fmt.Sprintf("%q", reason)) {
			return fmt.Errorf("no error %q: %s", reason, text)
		}
	}
	for _, i := range reply.Interfaces {
		if i.Pod.Name == name && i.Interface == "eth0" && i.RxPackets > 0 && i.TxPackets > 0 {
			return nil
		}
	}
	return errors.New(text)
}

func TestCountersAreShownAndContinueAfterTheDataplaneRestarts(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{HTTP: endpointAddress})
	stats := l.StatsSocket()
	// VPP's: docs/vpp.md
	if info, err := os.Stat(stats); err != nil || info.Mode().Perm() != 0o600 && dataplane.Prefix() == "" {
		t.Errorf("stats socket: %v, %v", info, err)
	}
	a := l.pod("a")
	b := l.pod("b")
	l.cni("ADD", a, nil)
	ofB := l.addresses(l.cni("ADD", b, nil))
	l.mustReach(a, ofB[0])
	netnstest.Do(t, a.Netns, func() { sendSpoofed(t) })
	until(t, "counters of a", func() error { return l.counts("a", "input ACL misses") })
	l.metric(`weft_dataplane_errors_total{node="ip4-inacl",reason="input ACL misses"}`, atLeast(1))
	l.metric(`weft_condition{condition="stats"}`, is(1))

	if err := os.Remove(stats); err != nil {
		t.Fatal(err)
	}
	l.metric(`weft_condition{condition="stats"}`, is(0))
	if _, err := l.Weftctl(t.Context(), "counters"); err == nil ||
		!strings.Contains(err.Error(), "stats segment not readable") {
		t.Errorf("weftctl counters without a stats socket: %v", err)
	}
	if text, err := l.Weftctl(t.Context(), "status"); err != nil { // an error while the agent is not ready
		t.Error(text, err)
	}
	c := l.pod("c")
	l.cni("ADD", c, nil)
	if lines := l.logged("counters of the dataplane cannot be read"); len(lines) != 1 {
		t.Errorf("%d warnings: %q", len(lines), lines)
	}

	if err := unix.Kill(l.DataplanePID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.metric("weft_dataplane_replay_seconds_count", is(1))
	l.metric(`weft_condition{condition="stats"}`, is(1))
	l.mustReach(a, ofB[0])
	until(t, "counters of a after the restart", func() error { return l.counts("a") })
}
