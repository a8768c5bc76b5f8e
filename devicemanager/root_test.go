package devicemanager

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestTheDirectoryOfAllocationsIsRootsOnly or it is refused: others' files are not locked away with it.
func TestTheDirectoryOfAllocationsIsRootsOnly(t *testing.T) {
	id := strings.Repeat("x", idLength)
	for _, tt := range []struct {
		name string
		make func(root string) error
		text string // of the error; "" = there is none
	}{
		{"it is made", func(string) error { return nil }, ""},
		{"it is there", func(root string) error { return os.Mkdir(root, 0o700) }, ""},
		{"it is closed, if all in it is ours", func(root string) error {
			return errors.Join(os.Mkdir(root, 0o755), os.Mkdir(root+"/"+id, 0o755), os.WriteFile(root+"/"+id+".json", nil, 0o600))
		}, ""},
		{"one for others too is refused", func(root string) error { return errors.Join(os.Mkdir(root, 0o755), os.Mkdir(root+"/snap", 0o755)) }, "snap"},
		{"a link is refused", func(root string) error { return os.Symlink(os.TempDir(), root) }, "no directory of root's"},
		{"a file is refused", func(root string) error { return os.WriteFile(root, nil, 0o600) }, "no directory of root's"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir() + "/memif"
			if err := tt.make(root); err != nil {
				t.Fatal(err)
			}
			before := mode(root)
			err := secureRoot(root)
			if tt.text == "" && (err != nil || mode(root) != "drwx------") {
				t.Errorf("error %v, mode %s", err, mode(root))
			}
			if tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text) || mode(root) != before) {
				t.Errorf("error %v, mode %s", err, mode(root))
			}
		})
	}
}

// TestAnotherRootLeavesPodsWhatTheyHave: allocations stay in the directory that they were made in.
func TestAnotherRootLeavesPodsWhatTheyHave(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	had := n.Allocations()[0]
	n.stop()
	if err := os.RemoveAll(n.config.Root); err != nil { // as a reboot does
		t.Fatal(err)
	}
	n.config.Root = n.dir + "/other"
	n.boot(t)
	n.present(t)
	if got := n.mustAdd(t, "a", "s1").Interfaces[0].Memif.Allocation; got != had.ID || mode(had.Directory) != "drwxr-xr-x" {
		t.Errorf("allocation %s, had %s; its directory has mode %q", got, had.ID, mode(had.Directory))
	}
	n.admit(t, podOf("b", 1))
	if got := n.Allocations()[1].Directory; !strings.HasPrefix(got, n.config.Root+"/") {
		t.Errorf("a new allocation stands at %s", got)
	}
}
