package vpp

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	binapi "go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/wire"
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

func TestDeleteKeepsTheFileOfASocketThatHasTheNumberNow(t *testing.T) {
	l := newMemifLab(t)
	l.mustCommit(append(l.allocation("a", 5), l.allocation("b", 6)[0])...)
	other := filepath.Join(l.root, "b", "memif.sock")
	l.send(&binapi.MemifSocketFilenameAddDelV2{SocketID: 5}, &binapi.MemifSocketFilenameAddDelV2Reply{})
	l.send(&binapi.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: 5, SocketFilename: other},
		&binapi.MemifSocketFilenameAddDelV2Reply{})
	l.send(&binapi.MemifCreateV2{SocketID: 5, ID: 9, RxQueues: 1, TxQueues: 1, RingSize: 1024, BufferSize: 2048},
		&binapi.MemifCreateV2Reply{})
	l.mustCommit(object{wire.MemifSocketKey("a"), nil})
	if _, err := os.Lstat(other); err != nil {
		t.Errorf("file of the other socket: %v", err)
	}
	if _, sockets := l.memifs(); !slices.Equal(sockets, []string{"5 b"}) {
		t.Errorf("sockets %v, want that of b", sockets)
	}
}
