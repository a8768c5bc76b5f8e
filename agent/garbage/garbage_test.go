package garbage

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/netns"
)

var quiet = slog.New(slog.DiscardHandler)

// The agent deletes the attachment of a namespace that is gone, so a namespace that exists must not be reported as
// gone.
func TestOnlyWhatLeadsElsewhereIsGone(t *testing.T) {
	path := netnstest.New(t)
	other := netnstest.New(t)
	inode, device, err := linux.InspectNamespace(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	ring := filepath.Join(dir, "ring")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ring, ring); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		path string
		gone bool
	}{
		"the namespace":              {path, false},
		"another one":                {other, true},
		"nothing":                    {filepath.Join(dir, "nothing"), true},
		"a file":                     {file, true},
		"the host's":                 {"/proc/thread-self/ns/net", true},
		"a file that cannot be read": {ring, false},
	} {
		if got := IsGone(pod.Netns{Path: tt.path, Inode: inode, Device: device}); got != tt.gone {
			t.Errorf("%s: gone is %t", name, got)
		}
	}
}

// evidence is what the agent sees of the namespaces of some pods, and what the API server says of the pods.
type evidence struct {
	all     []string // pods
	missing []string // those whose namespaces are removed
	other   bool     // a namespace of another program is in the directory
	hidden  bool     // the directory is not visible
	deleted string   // a pod that the API server does not have
	silent  bool     // the API server does not answer
	runtime []string // sandboxes that the container runtime has
}

// make makes the namespaces, and gives the attachments of the pods.
func (e evidence) make(t *testing.T) (all []pod.Attachment) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range e.all {
		all = append(all, pod.Attachment{
			Key: pod.Key{Network: "weft", ContainerID: name, IfName: "eth0"}, Pod: pod.ID{Namespace: "lab", Name: name},
			Netns: makeNamespace(t, filepath.Join(dir, name)),
		})
	}
	if e.other {
		makeNamespace(t, filepath.Join(dir, "other"))
	}
	for _, name := range e.missing {
		if err := netns.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if e.hidden {
		rename(t, dir, dir+".hidden")
		t.Cleanup(func() { rename(t, dir+".hidden", dir) })
	}
	return all
}

func makeNamespace(t *testing.T, path string) pod.Netns {
	t.Helper()
	if err := netns.Make(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netns.Remove(path) })
	inode, device, err := linux.InspectNamespace(path)
	if err != nil {
		t.Fatal(err)
	}
	return pod.Netns{Path: path, Inode: inode, Device: device}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// The network of a pod is deleted only if its namespace is missing in two polls and there is evidence for it.
func TestAnAttachmentIsCollectedOnlyOnEvidence(t *testing.T) {
	for name, tt := range map[string]struct {
		evidence
		collected []string
		kept      int
	}{
		"a minority": {
			evidence{all: []string{"a", "b", "c"}, missing: []string{"b"}}, []string{"b"}, 0,
		},
		"half": {
			evidence{all: []string{"a", "b"}, missing: []string{"b"}}, []string{"b"}, 0,
		},
		"most": {
			evidence{all: []string{"a", "b", "c"}, missing: []string{"a", "b"}}, nil, 2,
		},
		"most, one of a deleted pod": {
			evidence{all: []string{"a", "b", "c"}, missing: []string{"a", "b"}, deleted: "a"}, []string{"a"}, 1,
		},
		"most, and the API server is silent": {
			evidence{all: []string{"a", "b", "c"}, missing: []string{"a", "b"}, deleted: "a", silent: true}, nil, 2,
		},
		"the only one, and no other is seen": {evidence{all: []string{"a"}, missing: []string{"a"}}, nil, 1},
		"the only one, and others are seen": {
			evidence{all: []string{"a"}, missing: []string{"a"}, other: true}, []string{"a"}, 0,
		},
		"the only one, of a deleted pod": {
			evidence{all: []string{"a"}, missing: []string{"a"}, deleted: "a"}, []string{"a"}, 0,
		},
		"most, one without a sandbox": {
			evidence{all: []string{"a", "b", "c"}, missing: []string{"a", "b"}, runtime: []string{"b", "c"}},
			[]string{"a"}, 1,
		},
		"most, and the runtime is another one": {
			evidence{all: []string{"a", "b", "c"}, missing: []string{"a", "b"}, runtime: []string{"x"}}, nil, 2,
		},
		"all, in a hidden directory":          {evidence{all: []string{"a", "b"}, hidden: true}, nil, 2},
		"the only one, in a hidden directory": {evidence{all: []string{"a"}, hidden: true}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			all := tt.make(t)
			var collected []string
			h := health.New("", quiet)
			questions := 0
			v := New(h, quiet, func(_ context.Context, at *pod.Attachment, _ string) error {
				collected = append(collected, at.Pod.Name)
				return nil
			})
			v.IsDeleted = func(_ context.Context, id pod.ID) (bool, error) {
				questions++
				if tt.silent {
					return false, errors.New("timeout")
				}
				return id.Name == tt.deleted, nil
			}
			v.Sandboxes = func(context.Context) (map[string]bool, error) { return setOf(tt.runtime), nil }
			v.Poll(t.Context(), all)
			if collected != nil || !h.Holds(health.Sandboxes) {
				t.Fatalf("the first poll collected %v", collected)
			}
			v.Poll(t.Context(), all)
			if !slices.Equal(collected, tt.collected) {
				t.Errorf("collected %v, expected %v", collected, tt.collected)
			}
			if h.Holds(health.Sandboxes) != (tt.kept == 0) {
				t.Errorf("%d are kept, and the condition is %v", tt.kept, tt.kept > 0)
			}
			if tt.silent && questions != 1 {
				t.Errorf("%d questions to a server that does not answer", questions)
			}
		})
	}
}

// A namespace that was missing once, and is back at the next poll, was not visible for a moment.
func TestANamespaceThatIsBackIsNotCollected(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	away := dir + ".away"
	place := makeNamespace(t, path)
	all := []pod.Attachment{{Key: pod.Key{ContainerID: "a"}, Pod: pod.ID{Namespace: "lab", Name: "a"}, Netns: place}}
	v := New(health.New("", quiet), quiet, func(context.Context, *pod.Attachment, string) error {
		t.Error("it is collected")
		return nil
	})
	v.IsDeleted = func(context.Context, pod.ID) (bool, error) { return true, nil }
	for range 3 {
		rename(t, dir, away)
		v.Poll(t.Context(), all)
		rename(t, away, dir)
		v.Poll(t.Context(), all)
	}
}

func setOf(names []string) map[string]bool {
	if names == nil {
		return nil
	}
	set := make(map[string]bool)
	for _, name := range names {
		set[name] = true
	}
	return set
}

// A pod that is deleted may still get a DEL, and its sandbox is not gone because the API server does not have the pod.
func TestAnAttachmentWithItsNamespaceIsCollectedAfterAGraceWithoutASandbox(t *testing.T) {
	broken := errors.New("no answer")
	for name, tt := range map[string]struct {
		runs    bool // the API server has the pod
		silent  bool // the API server does not answer
		bare    bool // the container is no pod
		runtime []string
		failed  error // of the runtime
		kubelet func(context.Context, pod.ID) (bool, error)
		after   time.Duration // it is collected; 0: never
	}{
		"the runtime does not have the sandbox": {runtime: []string{"other"}, after: time.Minute},
		"the runtime has the sandbox": {
			runtime: []string{"a", "other"},
			kubelet: lists(false, nil),
		},
		"the runtime does not answer": {failed: broken, kubelet: lists(false, nil)},
		"the runtime is another one": {
			runtime: []string{"x"},
			kubelet: lists(false, nil),
			after:   10 * time.Minute,
		},
		"the runtime is another one, and kubelet is not known": {runtime: []string{"x"}},
		"kubelet does not list the pod":                        {kubelet: lists(false, nil), after: 10 * time.Minute},
		"kubelet lists the pod":                                {kubelet: lists(true, nil)},
		"kubelet does not answer":                              {kubelet: lists(false, broken)},
		"there is no second source":                            {},
		"the pod is not deleted": {
			runs:    true,
			runtime: []string{"other"},
			kubelet: lists(false, nil),
		},
		"the API server does not answer": {silent: true, runtime: []string{"other"}},
		"the container is no pod":        {bare: true, runtime: []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := evidence{all: []string{"a", "other"}}.make(t)
			if tt.bare {
				all[0].Pod = pod.ID{}
			}
			began := time.Now()
			now := began
			collected := time.Duration(0)
			h := health.New("", quiet)
			v := New(h, quiet, func(_ context.Context, at *pod.Attachment, reason string) error {
				if at.Key.ContainerID != "a" || reason != "pod is deleted" {
					t.Errorf("%s is collected: %s", at.Key, reason)
				}
				if collected == 0 {
					collected = now.Sub(began)
				}
				return nil
			})
			v.now = func() time.Time { return now }
			v.IsListed = tt.kubelet
			v.IsDeleted = func(_ context.Context, id pod.ID) (bool, error) {
				if tt.silent {
					return false, broken
				}
				return id.Name == "a" && !tt.runs, nil
			}
			v.Sandboxes = func(context.Context) (map[string]bool, error) { return setOf(tt.runtime), tt.failed }
			v.Poll(t.Context(), all)
			for ; now.Sub(began) < time.Hour; now = now.Add(20 * time.Second) {
				v.Poll(t.Context(), all)
			}
			if collected != tt.after || !h.Holds(health.Sandboxes) {
				t.Errorf("collected after %s, want %s; the condition holds: %t", collected, tt.after,
					h.Holds(health.Sandboxes))
			}
		})
	}
}

func lists(listed bool, err error) func(context.Context, pod.ID) (bool, error) {
	return func(context.Context, pod.ID) (bool, error) { return listed, err }
}

func TestTheGraceBeginsAnewWhenTheSandboxIsThereAgain(t *testing.T) {
	all := evidence{all: []string{"a", "other"}}.make(t)
	now := time.Now()
	collected := 0
	v := New(health.New("", quiet), quiet, func(context.Context, *pod.Attachment, string) error {
		collected++
		return nil
	})
	has := []string{"other"}
	v.now = func() time.Time { return now }
	v.IsDeleted = func(_ context.Context, id pod.ID) (bool, error) { return id.Name == "a", nil }
	v.Sandboxes = func(context.Context) (map[string]bool, error) { return setOf(has), nil }
	for _, has = range [][]string{{"other"}, {"other"}, {"other"}, {"a", "other"}, {"other"}, {"other"}, {"other"}} {
		v.Poll(t.Context(), all)
		now = now.Add(20 * time.Second)
	}
	if collected != 0 {
		t.Error("it is collected")
	}
	v.Poll(t.Context(), all)
	if collected != 1 {
		t.Error("it is not collected after a minute")
	}
}
