package agent

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/programs"
)

// startHere starts the agent in this process, without its background work. before is called with the agent before its
// start.
func (l *lab) startHere(before func(a *Agent)) *Agent {
	l.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	new(config.Config).Flags(fs)
	config, err := config.Read(fs, l.Config(), os.Environ())
	if err != nil {
		l.Fatal(err)
	}
	a, err := New(l.Context(), config, quiet)
	if err != nil {
		l.Fatal(err)
	}
	before(a)
	ctx, cancel := context.WithCancel(l.Context())
	var group errgroup.Group
	for _, run := range []func(context.Context) error{a.backend.scheduler.Run, a.loop.Run, a.backend.dataplane.Run} {
		group.Go(func() error { return run(ctx) })
	}
	l.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			l.Error(err)
		}
		if err := a.Close(); err != nil {
			l.Error(err)
		}
	})
	if err := a.start(ctx); err != nil {
		l.Fatal(err)
	}
	return a
}

// A queued DEL of a pod that is added again would delete its network.
func TestQueuedDeletesAreDoneBeforeTheAgentIsReady(t *testing.T) {
	l := newLab(t, programs.Build(t))
	a := l.pod("a")
	l.cni("ADD", a, nil)
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	l.cni("DEL", a, nil) // queued
	var deleted int
	started := l.startHere(func(a *Agent) {
		eventloop.On(a.loop, "test", func(_ context.Context, ev *pod.DeletePod, _ *eventloop.Txn) error {
			if deleted++; a.health.Holds(health.Started) {
				t.Errorf("the agent is ready before the %s of %s", ev.Reason, ev.Key)
			}
			return nil
		})
	})
	if left := started.pods.Attachments(); deleted != 1 || len(left) > 0 || !started.health.Holds(health.Started) {
		t.Errorf("%d DELs were executed; attachments: %v", deleted, left)
	}
	if n, err := started.deletions.queue.Len(); n != 0 || err != nil {
		t.Errorf("the queue has %d entries (%v)", n, err)
	}
}

// The node was rebooted, or the runtime was killed with the pods.
func TestSandboxesThatVanishedWhileTheAgentWasDownAreFoundAtItsStart(t *testing.T) {
	l := newLab(t, programs.Build(t))
	a := l.pod("a")
	b := l.pod("b")
	l.cni("ADD", a, nil)
	l.cni("ADD", b, nil)
	if err := errors.Join(l.StopAgent(), a.Remove()); err != nil {
		t.Fatal(err)
	}
	started := l.startHere(func(*Agent) {})
	if n := len(started.pods.Attachments()); n != 2 {
		t.Errorf("after one poll there are %d attachments, want both", n)
	}
	started.deletions.vanished.Poll(t.Context(), started.pods.Attachments())
	if left := started.pods.Attachments(); len(left) != 1 || left[0].Pod.Name != "b" {
		t.Errorf("the first poll after the start leaves %v, want only pod b", left)
	}
}

func TestSandboxesThatVanishAreCollectedWhileTheAgentRuns(t *testing.T) {
	l := newLab(t, programs.Build(t))
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	if err := l.StartAgent(t.Context(), "--audit=1s"); err != nil {
		t.Fatal(err)
	}
	a := l.pod("a")
	b := l.pod("b")
	l.cni("ADD", a, nil)
	l.cni("ADD", b, nil)
	if err := a.Remove(); err != nil {
		t.Fatal(err)
	}
	l.eventually("only the attachment without a network namespace is deleted", func() bool {
		left, err := l.Weftctl(t.Context(), "attachments")
		return err == nil && !strings.Contains(left, "lab/a") && strings.Contains(left, "lab/b")
	})
	l.cni("DEL", b, nil)
}
