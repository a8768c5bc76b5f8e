package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/netns"
)

// The agent deletes the attachment of a namespace that is gone, so a namespace that exists must not be reported as gone.
func TestOnlyWhatLeadsElsewhereIsGone(t *testing.T) {
	path, other := netnstest.New(t), netnstest.New(t)
	was, err := inspect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, ring := filepath.Join(dir, "file"), filepath.Join(dir, "ring")
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
		"the namespace":            {path, false},
		"another one":              {other, true},
		"nothing":                  {filepath.Join(dir, "nothing"), true},
		"a file":                   {file, true},
		"the host's":               {"/proc/thread-self/ns/net", true},
		"what cannot be looked at": {ring, false},
	} {
		if got := isGone(pod.Netns{Path: tt.path, Inode: was.Inode, Device: was.Device}); got != tt.gone {
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
	place, err := inspect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return place
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
		"a minority":                          {evidence{all: []string{"a", "b", "c"}, missing: []string{"b"}}, []string{"b"}, 0},
		"half":                                {evidence{all: []string{"a", "b"}, missing: []string{"b"}}, []string{"b"}, 0},
		"most":                                {evidence{all: []string{"a", "b", "c"}, missing: []string{"a", "b"}}, nil, 2},
		"most, one of a deleted pod":          {evidence{all: []string{"a", "b", "c"}, missing: []string{"a", "b"}, deleted: "a"}, []string{"a"}, 1},
		"most, and the API server is silent":  {evidence{all: []string{"a", "b", "c"}, missing: []string{"a", "b"}, deleted: "a", silent: true}, nil, 2},
		"the only one, and no other is seen":  {evidence{all: []string{"a"}, missing: []string{"a"}}, nil, 1},
		"the only one, and others are seen":   {evidence{all: []string{"a"}, missing: []string{"a"}, other: true}, []string{"a"}, 0},
		"the only one, of a deleted pod":      {evidence{all: []string{"a"}, missing: []string{"a"}, deleted: "a"}, []string{"a"}, 0},
		"all, in a hidden directory":          {evidence{all: []string{"a", "b"}, hidden: true}, nil, 2},
		"the only one, in a hidden directory": {evidence{all: []string{"a"}, hidden: true}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			all := tt.make(t)
			var collected []string
			h, questions := newHealth("", quiet), 0
			v := newVanished(h, quiet, func(_ context.Context, at *pod.Attachment) error {
				collected = append(collected, at.Pod.Name)
				return nil
			})
			v.isDeleted = func(_ context.Context, id pod.ID) (bool, error) {
				questions++
				if tt.silent {
					return false, errors.New("timeout")
				}
				return id.Name == tt.deleted, nil
			}
			v.poll(t.Context(), all)
			if collected != nil || !h.holds(conditionSandboxes) {
				t.Fatalf("the first poll collected %v", collected)
			}
			v.poll(t.Context(), all)
			if !slices.Equal(collected, tt.collected) {
				t.Errorf("collected %v, expected %v", collected, tt.collected)
			}
			if h.holds(conditionSandboxes) != (tt.kept == 0) {
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
	path, away := filepath.Join(dir, "a"), dir+".away"
	place := makeNamespace(t, path)
	all := []pod.Attachment{{Key: pod.Key{ContainerID: "a"}, Pod: pod.ID{Namespace: "lab", Name: "a"}, Netns: place}}
	v := newVanished(newHealth("", quiet), quiet, func(context.Context, *pod.Attachment) error {
		t.Error("it is collected")
		return nil
	})
	v.isDeleted = func(context.Context, pod.ID) (bool, error) { return true, nil }
	for range 3 {
		rename(t, dir, away)
		v.poll(t.Context(), all)
		rename(t, away, dir)
		v.poll(t.Context(), all)
	}
}
