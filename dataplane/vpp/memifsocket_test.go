package vpp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weftnet/weft/memif"
)

func TestSocketWithARemovedFileIsServedAgain(t *testing.T) {
	l := newMemifLab(t)
	l.mustCommit(append(l.allocation("a", 5), memifOn("m1", "a", 1), memifOn("m2", "a", 2))...)
	l.mustCommit(l.allocation("b", 6)...) // nothing is served there yet
	l.quiet()
	if err := os.Remove(filepath.Join(l.root, "a", "memif.sock")); err != nil {
		t.Fatal(err)
	}
	if found := l.differences(); len(found) != 1 {
		t.Errorf("differences %+v, want that of the socket", found)
	}
	l.resync()
	l.quiet()
	l.mustHave("m1 5/1 m2 5/2", "5 a 6 b")
	for id := range uint32(2) {
		if err := l.connect("a", memif.ClientConfig{ID: 1 + id, Secret: "open sesame"}); err != nil {
			t.Error(err)
		}
	}
}
