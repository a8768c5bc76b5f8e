package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/pod"
)

// A pod whose namespace is taken for gone loses its interfaces.
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
