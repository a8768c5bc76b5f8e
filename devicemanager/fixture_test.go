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

// node is a kubelet and a device manager with real files.
type node struct {
	*Manager
	dir       string
	config    Config
	kubelet   *kubelettest.Kubelet
	loop      *eventloop.Loop
	committer *eventlooptest.Committer
	applied   map[string]any // by key
	saver     *eventlooptest.Saver
	log       *syncBuffer
	clock     *clock
	collects  bool   // the agent runs the collector; else the test does
	stop      func() // the agent
}

// newNode starts kubelet and an agent that is registered.
func newNode(t *testing.T, change ...func(*node)) *node {
	t.Helper()
	n := bareNode(t, change...)
	n.present(t)
	return n
}

// bareNode starts kubelet and an agent that does not register.
func bareNode(t *testing.T, change ...func(*node)) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft") // t.TempDir is too long for a socket path
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
		Kubelet: Kubelet{
			PluginDir: k.PluginDir(), PodResources: k.PodResources(), Poll: 50 * time.Millisecond,
		},
		Directories: Directories{
			Root: filepath.Join(dir, "run", "memif"), DeviceInfo: filepath.Join(dir, "devinfo"),
		},
		Collect: Collect{After: time.Hour}, Now: n.clock.Now,
		Log: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(n)
	}
	n.boot(t)
	return n
}

// boot starts an agent from the state file, with the given attachments.
func (n *node) boot(t *testing.T, connected ...*pod.Attachment) {
	t.Helper()
	n.committer = &eventlooptest.Committer{}
	n.applied = make(map[string]any)
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
	m.Restore(n.stateFile(t), connected)
	if err := m.Rebuild(); err != nil {
		t.Fatal(err)
	}
	eventloop.On(n.loop, "ipnet", connect)
	m.Register(n.loop)
	n.stop = eventlooptest.Ready(t, n.loop)
}

// connect replaces the handlers that connect pods: a memif for each grant, owned by root and the grant's group. The
// annotation role is that of its memifs.
func connect(_ context.Context, ev *pod.AddPod, _ *eventloop.Txn) error {
	ev.Attachment = &pod.Attachment{Key: ev.Key, Pod: ev.ID}
	for i, g := range ev.Grants {
		ev.Attachment.Interfaces = append(ev.Attachment.Interfaces, pod.Interface{
			Name: fmt.Sprintf("memif%d", i), Type: pod.TypeMemif,
			Memif: &pod.Memif{
				Container:  g.Container,
				Allocation: g.Allocation.ID,
				UID:        g.Allocation.UID,
				GID:        g.GID,
				Role:       ev.Annotations["role"],
			},
		})
	}
	return nil
}

// present runs the agent until the test ends and waits until it is registered.
func (n *node) present(t *testing.T) {
	t.Helper()
	before := n.kubelet.Registrations()
	n.run(t)
	// Until then kubelet may not have noticed that an agent before this one is gone.
	eventually(t, "registered", func() bool { return n.kubelet.Registrations() > before })
	n.await(t, n.count())
}

// run starts the registration with kubelet.
func (n *node) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	run := n.registrar.run
	loopStops := n.stop
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

func (n *node) count() int { return n.Manager.config.Devices.Count }

// await waits until kubelet has the given number of allocatable devices.
func (n *node) await(t *testing.T, allocatable int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.kubelet.Await(ctx, pod.Resource, allocatable); err != nil {
		t.Fatal(err)
	}
}

// kill ends the agent and starts another one.
func (n *node) kill(t *testing.T, connected ...*pod.Attachment) {
	t.Helper()
	n.stop()
	n.boot(t, connected...)
}

// stateFile returns the allocations of the state file.
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

// realise applies a change to files, as the scheduler and linux.file do: what has its value already is not applied
// again.
func (n *node) realise(_ context.Context, c eventloop.Change) error {
	var settings []eventloop.Setting
	for _, s := range c.Set {
		if s.Value == nil || n.applied[s.Key] != s.Value {
			settings = append(settings, s)
		}
		n.applied[s.Key] = s.Value
	}
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

// mode returns a file's mode, "" if it does not exist.
func mode(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	return info.Mode().String()
}

// leftovers returns the files that allocations left.
func (n *node) leftovers(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, root := range []string{n.config.Directories.Root, n.config.Directories.DeviceInfo} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if path == root || errors.Is(err, fs.ErrNotExist) { // the collector may be running
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

// podOf returns a pod with one container for each limit.
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

// add performs an ADD: it queries the devices and handles the event.
func (n *node) add(ctx context.Context, name, sandbox string) (*pod.AddPod, error) {
	ev, err := n.addEvent(ctx, name, sandbox)
	if err != nil {
		return nil, err
	}
	_, err = n.loop.Do(ctx, ev)
	return ev, err
}

// mustAdd connects a sandbox or fails the test.
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
	return &pod.AddPod{Request: pod.Request{
		Key:      keyOf(sandbox),
		ID:       idOf(name),
		Netns:    pod.Netns{Path: "/run/netns/" + sandbox, Inode: 1},
		Resolved: pod.Resolved{Grants: grants},
	}}, err
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

// syncBuffer collects the log.
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

// clock is set by the test and advances a nanosecond per reading, so that all times differ.
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

// soon waits until condition holds, and fails the test if that takes longer than limit.
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
