package install

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weftnet/weft/cni/cnitest"
)

// node is a machine as far as installing knows it.
type node struct {
	t     *testing.T
	dir   string
	agent *cnitest.Agent
	log   lines
	out   lines
}

// lines is what is written, by whichever goroutine.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newNode is a machine with the directories of a runtime and, unless behaviour is empty, an agent that is played.
func newNode(t *testing.T, behaviour ...cnitest.Behaviour) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft") // short, as a socket's path must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, dir: dir, agent: &cnitest.Agent{}}
	for _, d := range []string{"bin", "net.d", "run"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if len(behaviour) > 0 {
		n.agent.Behave(behaviour...)
		n.agent.Listen(t, n.path("run/agent.sock"))
	}
	return n
}

func (n *node) path(rel string) string { return filepath.Join(n.dir, rel) }

// options are the defaults, within the machine.
func (n *node) options() Options {
	var o Options
	o.InstallFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	o.Source = filepath.Join(built, "this.d")
	o.BinDir, o.ConfDir, o.Socket = n.path("bin"), n.path("net.d"), n.path("run/agent.sock")
	o.DeleteQueue = n.path("queue")
	o.Wait = time.Minute
	return o
}

// installer is one of this build, with the options changed by each of with.
func (n *node) installer(with ...func(*Options)) *installer {
	n.t.Helper()
	o := n.options()
	for _, change := range with {
		change(&o)
	}
	if err := o.ValidateInstall(); err != nil {
		n.t.Fatal(err)
	}
	i := newInstaller(o, slog.New(slog.NewTextHandler(&n.log, nil)), &n.out)
	i.build = thisBuild
	if strings.HasSuffix(o.Source, "next.d") {
		i.build = nextBuild
	}
	if err := i.load(); err != nil {
		n.t.Fatal(err)
	}
	return i
}

func (n *node) install(with ...func(*Options)) {
	n.t.Helper()
	if err := n.installer(with...).run(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

func next(o *Options) { o.Source = filepath.Join(built, "next.d") }

func impatient(o *Options) { o.Wait = 700 * time.Millisecond }

func chainedTo(path string) func(*Options) {
	return func(o *Options) { o.Mode, o.Extend = Chained, path }
}

func (n *node) write(rel, content string) string {
	n.t.Helper()
	if err := os.WriteFile(n.path(rel), []byte(content), 0o755); err != nil {
		n.t.Fatal(err)
	}
	return n.path(rel)
}

func (n *node) read(rel string) string {
	n.t.Helper()
	raw, err := os.ReadFile(n.path(rel))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(raw)
}

func (n *node) has(rel string) bool {
	_, err := os.Lstat(n.path(rel))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	return err == nil
}

// entries are the names in a directory.
func (n *node) entries(rel string) string {
	n.t.Helper()
	entries, err := os.ReadDir(n.path(rel))
	if err != nil {
		n.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func (n *node) eventually(what string, holds func() bool) {
	n.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			n.t.Fatalf("not in time: %s\n%s", what, n.log.String())
		}
	}
}

// watch installs and stays, until the test or stop ends it.
func (n *node) watch(with ...func(*Options)) (stop func()) {
	n.t.Helper()
	i := n.installer(append(with, func(o *Options) { o.Watch = true })...)
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	go func() { done <- i.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("the watch ended with %v", err)
		}
	})
	n.t.Cleanup(stop)
	return stop
}

// noPods is an agent that has wired nobody.
func noPods(context.Context) ([]string, error) { return nil, nil }
