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

// node is a directory with the files of a node.
type node struct {
	t     *testing.T
	dir   string
	agent *cnitest.Agent
	log   output
	out   output
}

// output collects writes of several goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// newNode returns a node with the directories of a runtime and, unless behaviour is empty, a fake agent.
func newNode(t *testing.T, behaviour ...cnitest.Behaviour) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft") // short, because socket paths are bounded
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

// options returns the defaults with paths of the node.
func (n *node) options() Options {
	var o Options
	o.InstallFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	o.Source = filepath.Join(built, "this.d")
	o.BinDir, o.ConfDir, o.Socket = n.path("bin"), n.path("net.d"), n.path("run/agent.sock")
	o.DeleteQueue = n.path("queue")
	o.Wait = time.Minute
	return o
}

// installer returns an installer of this build, with changed options.
func (n *node) installer(changes ...func(*Options)) *installer {
	n.t.Helper()
	o := n.options()
	for _, change := range changes {
		change(&o)
	}
	if err := o.ValidateInstall(); err != nil {
		n.t.Fatal(err)
	}
	i := newInstaller(o, slog.New(slog.NewTextHandler(&n.log, nil)), &n.out)
	i.programs.build = thisBuild
	if strings.HasSuffix(o.Source, "next.d") {
		i.programs.build = nextBuild
	}
	if err := i.programs.load(); err != nil {
		n.t.Fatal(err)
	}
	return i
}

func (n *node) install(changes ...func(*Options)) {
	n.t.Helper()
	if err := n.installer(changes...).run(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

func next(o *Options) { o.Source = filepath.Join(built, "next.d") }

func shortWait(o *Options) { o.Wait = 700 * time.Millisecond }

func chainedTo(path string) func(*Options) {
	return func(o *Options) {
		o.Mode = Chained
		o.Extend = path
	}
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

// entries returns the names in a directory.
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
			n.t.Fatalf("timeout: %s\n%s", what, n.log.String())
		}
	}
}

// watch runs an installer with --watch until stop, or the end of the test.
func (n *node) watch(changes ...func(*Options)) (stop func()) {
	n.t.Helper()
	i := n.installer(append(changes, func(o *Options) { o.Watch = true })...)
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	go func() { done <- i.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Errorf("the watch failed: %v", err)
		}
	})
	n.t.Cleanup(stop)
	return stop
}

// noPods is the answer of an agent without pods.
func noPods(context.Context) ([]string, error) { return nil, nil }
