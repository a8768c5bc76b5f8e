package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
	"github.com/weftnet/weft/wire"
)

// newFileCommitter returns a committer for files, and the reason why its last rebuild was refused.
func newFileCommitter(t *testing.T) (c *committer, refused *error) {
	t.Helper()
	s := kvscheduler.New(kvscheduler.Config{Sources: []string{ownSource, externalSource}})
	if err := linux.Register(s, linux.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	refused = new(error)
	return &committer{
		scheduler: s, client: vpp.New("/nowhere", vpp.Options{}),
		onRefused: func(err error) { *refused = err }, onRepair: func(*kvscheduler.Record) {},
	}, refused
}

// fileOn returns a directory that depends on another object.
func fileOn(path, on string) eventloop.Setting {
	return eventloop.Setting{
		Key:   wire.Key(wire.KindFile, path),
		Value: wire.File{Type: wire.Directory, Mode: 0o700, On: on},
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestOnlyAnExternalValueThatMakesACycleIsRefused(t *testing.T) {
	for name, resync := range map[string]eventloop.Resync{
		"update":   eventloop.None,
		"upstream": eventloop.Upstream,
		"full":     eventloop.Full,
	} {
		t.Run(name, func(t *testing.T) {
			c, refused := newFileCommitter(t)
			dir := t.TempDir()
			own := filepath.Join(dir, "own")
			good := filepath.Join(dir, "good")
			a := filepath.Join(dir, "a")
			b := filepath.Join(dir, "b")
			out, err := c.Commit(t.Context(), eventloop.Change{
				Event: 1, Resync: resync, Set: []eventloop.Setting{fileOn(own, "")},
				External: []eventloop.Setting{
					fileOn(a, wire.Key(wire.KindFile, b)), fileOn(b, wire.Key(wire.KindFile, a)), fileOn(good, ""),
				},
			})
			if err != nil || *refused != nil {
				t.Fatalf("own values: %v, %v", err, *refused)
			}
			if len(out.Refused) != 1 || !strings.Contains(out.Refused[wire.Key(wire.KindFile, b)], "cycle") {
				t.Errorf("refused %q, want only the second value of the cycle", out.Refused)
			}
			if !exists(own) || !exists(good) {
				t.Errorf("own value applied: %v, good external value applied: %v", exists(own), exists(good))
			}
		})
	}
}

// A directory that is deleted and recreated would lose its content.
func TestUpstreamResyncWithARefusedValueKeepsOtherObjects(t *testing.T) {
	c, _ := newFileCommitter(t)
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	old := filepath.Join(dir, "old")
	a := filepath.Join(dir, "a")
	b := filepath.Join(dir, "b")
	if _, err := c.Commit(t.Context(), eventloop.Change{
		Event:    1,
		External: []eventloop.Setting{fileOn(good, ""), fileOn(old, "")},
	}); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(good, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := c.Commit(t.Context(), eventloop.Change{
		Event: 2, Resync: eventloop.Upstream,
		External: []eventloop.Setting{
			fileOn(a, wire.Key(wire.KindFile, b)), fileOn(b, wire.Key(wire.KindFile, a)), fileOn(good, ""),
		},
	})
	if err != nil || len(out.Refused) != 1 {
		t.Fatalf("%v, refused %q", err, out.Refused)
	}
	if !exists(kept) || exists(old) {
		t.Errorf("the kept directory has its content: %v; the removed directory exists: %v", exists(kept), exists(old))
	}
}

func TestOwnValueReplacesAnExternalOneWithTheSameKeyInAFullResync(t *testing.T) {
	for range 8 { // the order of the sources must not matter
		c, refused := newFileCommitter(t)
		path := filepath.Join(t.TempDir(), "x")
		if _, err := c.Commit(t.Context(), eventloop.Change{
			Event:    1,
			External: []eventloop.Setting{fileOn(path, "")},
		}); err != nil {
			t.Fatal(err)
		}
		_, err := c.Commit(t.Context(), eventloop.Change{
			Event:    2,
			Resync:   eventloop.Full,
			Set:      []eventloop.Setting{fileOn(path, "")},
			External: []eventloop.Setting{{Key: wire.Key(wire.KindFile, path)}},
		})
		if err != nil || *refused != nil || !exists(path) {
			t.Fatalf("%v, %v, exists: %v", err, *refused, exists(path))
		}
	}
}

func TestAgentWithoutAnyObjectIsNotReady(t *testing.T) {
	c, refused := newFileCommitter(t)
	dir := t.TempDir()
	a := filepath.Join(dir, "a")
	b := filepath.Join(dir, "b")
	_, err := c.Commit(t.Context(), eventloop.Change{
		Event:  1,
		Resync: eventloop.Full,
		Set:    []eventloop.Setting{fileOn(a, wire.Key(wire.KindFile, b)), fileOn(b, wire.Key(wire.KindFile, a))},
	})
	if err == nil || *refused == nil {
		t.Fatalf("a rebuild with a cycle: %v, reported %v", err, *refused)
	}
	shared := &sharedObjects{scheduler: c.scheduler, health: health.New("", slog.New(slog.DiscardHandler))}
	shared.noteRefusal(*refused)
	if shared.report(); shared.health.Holds(health.Network) {
		t.Error("the condition network holds although no object is desired")
	}
	shared.noteRefusal(nil)
	if shared.report(); !shared.health.Holds(health.Network) {
		t.Error("the condition network does not hold after the next rebuild")
	}
}

// routes of external configuration, as many as the prune guard protects.
const guardedValues = 40

func externalRoutes(n int) []byte {
	var text strings.Builder
	for i := range n {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i), 0}), 24)
		fmt.Fprintf(&text,
			"vpp.route/weft:pods/ip4/%s: {vrf: \"weft:pods/ip4\", prefix: %s, paths: [{type: unreachable}]}\n", prefix,
			prefix)
	}
	return []byte(text.String())
}

func TestForcedResyncPrunesObjectsThatTheGuardKeeps(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{})
	dir := t.TempDir()
	file := filepath.Join(dir, "lab.yaml")
	write := func(n int) {
		t.Helper()
		if err := os.WriteFile(file, externalRoutes(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	restart := func() {
		t.Helper()
		if err := l.StopAgent(); err != nil {
			t.Fatal(err)
		}
		if err := l.StartAgent(t.Context(), "--external-config="+dir, "--audit=24h"); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		t.Helper()
		text, err := l.Weftctl(t.Context(), "objects", "vpp.route")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(text, "10.77.")
	}
	write(guardedValues)
	restart()
	l.await(func() bool { return count() == guardedValues }, "the external routes")
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	write(2)
	if err := l.StartAgent(t.Context(), "--external-config="+dir, "--audit=24h"); err != nil {
		t.Fatal(err)
	}
	l.await(func() bool { return len(l.logged("prune guard")) > 0 }, "the prune guard")
	for _, args := range [][]string{{"resync"}, {"resync", "--dry-run"}} {
		if text, err := l.Weftctl(t.Context(), args...); err == nil ||
			!strings.Contains(err.Error()+text, "prune guard") {
			t.Errorf("weftctl %v: %v, want the prune guard in:\n%s", args, err, text)
		}
	}
	text, err := l.Weftctl(t.Context(), "resync", "--dry-run", "--force")
	if err != nil || strings.Count(text, "delete vpp.route/weft:pods/ip4/10.77.") != guardedValues-2 ||
		count() != guardedValues {
		t.Errorf("a forced dry run: %v, %d objects exist:\n%s", err, count(), text)
	}
	if _, err := l.Weftctl(t.Context(), "resync", "--force"); err != nil {
		t.Error(err)
	}
	if n := count(); n != 2 {
		t.Errorf("%d routes exist, want 2", n)
	}
}
