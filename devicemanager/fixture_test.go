package devicemanager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/stopwatch"
	"github.com/weftnet/weft/wire"
)

// node is a machine with a kubelet and an agent's device manager: files are real.
type node struct {
	*Manager
	dir       string
	config    Config
	kubelet   *kubelettest.Kubelet
	loop      *eventloop.Loop
	committer *eventlooptest.Committer
	saver     *eventlooptest.Saver
	log       *syncBuffer
	clock     *clock
	collects  bool   // the agent, by itself; else the test does it
	stop      func() // the agent
}

// newNode starts kubelet and agent; the latter is present at kubelet, which has its devices.
func newNode(t *testing.T, change ...func(*node)) *node {
	t.Helper()
	n := bareNode(t, change...)
	n.present(t)
	return n
}

// bareNode has an agent that does not look for kubelet.
func bareNode(t *testing.T, change ...func(*node)) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft") // a socket's path is short, and t.TempDir is not
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	k, err := kubelettest.Start(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Stop() })
	n := &node{dir: dir, kubelet: k, saver: &eventlooptest.Saver{}, log: &syncBuffer{}, clock: &clock{now: time.Now()}}
	n.config = Config{
		PluginDir: k.PluginDir(), PodResources: k.PodResources(),
		Root: filepath.Join(dir, "run", "memif"), DeviceInfoDir: filepath.Join(dir, "devinfo"),
		Poll: 50 * time.Millisecond, CollectAfter: time.Hour, Now: n.clock.Now,
		Log: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(n)
	}
	n.boot(t)
	return n
}

// boot starts an agent with what the state file kept, for the pods that are wired.
func (n *node) boot(t *testing.T, wired ...*pod.Attachment) {
	t.Helper()
	n.committer = &eventlooptest.Committer{}
	n.committer.After(n.realise)
	n.loop = eventloop.New(eventloop.Config{
		Committer: n.committer, Saver: n.saver, Verify: true,
		OnVerify: func(found []string) { t.Errorf("verification found %v", found) },
	})
	config := n.config
	config.Loop = n.loop
	m, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	n.Manager = m
	m.Restore(n.stateFile(t), wired)
	if err := m.Rebuild(); err != nil {
		t.Fatal(err)
	}
	eventloop.On(n.loop, "ipnet", connect)
	m.Register(n.loop)
	n.stop = eventlooptest.Ready(t, n.loop)
}

// connect stands in for who connects pods: a memif for each grant, owned by root and the grant's group.
func connect(_ context.Context, ev *pod.AddPod, _ *eventloop.Txn) error {
	ev.Attachment = &pod.Attachment{Key: ev.Key, Pod: ev.ID}
	for i, g := range ev.Grants {
		ev.Attachment.Interfaces = append(ev.Attachment.Interfaces, pod.Interface{
			Name: fmt.Sprintf("memif%d", i), Type: pod.TypeMemif,
			Memif: &pod.Memif{Container: g.Container, Allocation: g.Allocation.ID, UID: g.Allocation.UID, GID: g.GID},
		})
	}
	return nil
}

// present lets the agent look for kubelet, until the test or the agent ends, and waits until it has found it.
func (n *node) present(t *testing.T) {
	t.Helper()
	before := n.kubelet.Registrations()
	n.run(t)
	// Until then kubelet may not have noticed that an agent before this one is gone.
	eventually(t, "registered", func() bool { return n.kubelet.Registrations() > before })
	n.await(t, n.count())
}

// run lets the agent look for kubelet.
func (n *node) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	run, loopStops := n.presence.run, n.stop
	if n.collects {
		run = n.Run
	}
	go func() { ended <- run(ctx) }()
	var once sync.Once
	n.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		loopStops()
	}
	t.Cleanup(n.stop)
}

func (n *node) count() int { return n.Manager.config.Count }

// await waits until kubelet has so many devices to give.
func (n *node) await(t *testing.T, allocatable int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.kubelet.Await(ctx, pod.Resource, allocatable); err != nil {
		t.Fatal(err)
	}
}

// kill ends the agent and starts another one.
func (n *node) kill(t *testing.T, wired ...*pod.Attachment) {
	t.Helper()
	n.stop()
	n.boot(t, wired...)
}

// stateFile is what the state file holds, as it holds it.
func (n *node) stateFile(t *testing.T) []Saved {
	t.Helper()
	var all []Saved
	for _, v := range n.saver.Bucket(bucket) {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var s Saved
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// realise makes files what a change says, as linux.file does.
func (n *node) realise(_ context.Context, c eventloop.Change) error {
	settings := c.Set
	if c.Resync != eventloop.None {
		settings = nil
		for key, value := range n.committer.Values() {
			settings = append(settings, eventloop.Setting{Key: key, Value: value})
		}
	}
	for _, directories := range []bool{true, false} {
		for _, s := range settings {
			path, ok := strings.CutPrefix(s.Key, wire.FileKey(""))
			f, _ := s.Value.(wire.File)
			if !ok || s.Value != nil && (f.Type == wire.Directory) != directories {
				continue
			}
			if err := realise(path, s.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func realise(path string, value any) error {
	f, wanted := value.(wire.File)
	switch {
	case !wanted:
		return os.RemoveAll(path)
	case f.Type == wire.Directory:
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
	default:
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(f.Content+string(f.Secret)), 0o600); err != nil {
			return err
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(path, f.UID, max(f.GID, 0)); err != nil {
			return err
		}
	}
	return os.Chmod(path, f.Mode)
}

// mode is that of a file, "" if there is none.
func mode(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	return info.Mode().String()
}

// leftovers are the files that allocations left.
func (n *node) leftovers(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, root := range []string{n.config.Root, n.config.DeviceInfoDir} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if path == root || errors.Is(err, fs.ErrNotExist) { // the collection may be at work
				return nil
			}
			left = append(left, path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return left
}

// podOf is a pod with one container for each limit.
func podOf(name string, limits ...int) kubelettest.Pod {
	p := kubelettest.Pod{Namespace: "shop", Name: name}
	for i, limit := range limits {
		p.Containers = append(p.Containers, kubelettest.Container{Name: fmt.Sprintf("c%d", i), Limit: limit})
	}
	return p
}

func idOf(name string) pod.ID { return pod.ID{Namespace: "shop", Name: name, UID: "uid-" + name} }

// admit has kubelet admit a pod.
func (n *node) admit(t *testing.T, p kubelettest.Pod) []kubelettest.Container {
	t.Helper()
	containers, err := n.kubelet.Admit(t.Context(), pod.Resource, p)
	if err != nil {
		t.Fatal(err)
	}
	return containers
}

// add is what happens for an ADD: the devices are asked for, and the event is handled.
func (n *node) add(ctx context.Context, name, sandbox string) (*pod.AddPod, error) {
	ev, err := n.addEvent(ctx, name, sandbox)
	if err != nil {
		return nil, err
	}
	_, err = n.loop.Do(ctx, ev)
	return ev, err
}

// mustAdd wires a sandbox that must be wired.
func (n *node) mustAdd(t *testing.T, name, sandbox string) *pod.Attachment {
	t.Helper()
	ev, err := n.add(t.Context(), name, sandbox)
	if err != nil {
		t.Fatal(err)
	}
	return ev.Attachment
}

func (n *node) addEvent(ctx context.Context, name, sandbox string) (*pod.AddPod, error) {
	grants, err := n.Devices(ctx, idOf(name))
	return &pod.AddPod{Key: keyOf(sandbox), ID: idOf(name), Netns: pod.Netns{Path: "/run/netns/" + sandbox, Inode: 1}, Grants: grants}, err
}

func keyOf(sandbox string) pod.Key {
	return pod.Key{Network: "weft", ContainerID: sandbox, IfName: "eth0"}
}

func (n *node) delete(t *testing.T, sandbox string) {
	t.Helper()
	if _, err := n.loop.Do(t.Context(), &pod.DeletePod{Key: keyOf(sandbox), Reason: "DEL"}); err != nil {
		t.Fatal(err)
	}
}

// syncBuffer is what was logged.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// clock is moved by hand, and a nanosecond by each look at it: no two things happen at once.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(1)
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// soon waits until condition holds, which is to take no longer than limit, of the time that the machine gives.
func soon(t *testing.T, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	if took := stopwatch.Time(func() { eventually(t, what, condition) }); took > limit {
		t.Errorf("%s took, not within %s: %s", took, limit, what)
	}
}

// eventually waits until condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}
