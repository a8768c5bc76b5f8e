package netns_test

import (
	"errors"
	"os"
	"testing"

	"github.com/weftnet/weft/internal/netns"
	"github.com/weftnet/weft/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func own(t *testing.T) string {
	t.Helper()
	link, err := os.Readlink(netns.Own)
	if err != nil {
		t.Error(err)
	}
	return link
}

func open(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

func TestDoRunsInTheNamespaceAndNoOtherGoroutineDoes(t *testing.T) {
	netnstest.Require(t)
	here := own(t)
	fd := open(t, netnstest.New(t))
	refused := errors.New("refused")
	for range 100 {
		if err := netns.Do(fd, func() error {
			if own(t) == here {
				t.Error("the function runs in the namespace of the process")
			}
			return refused
		}); !errors.Is(err, refused) || errors.Is(err, netns.ErrNotEntered) {
			t.Errorf("the error of the function: %v", err)
		}
		if got := own(t); got != here {
			t.Fatalf("a goroutine is in %s, want %s", got, here)
		}
	}
}

func TestDoRunsNothingWhereNoNamespaceIs(t *testing.T) {
	err := netns.Do(open(t, os.DevNull), func() error { t.Error("the function runs"); return nil })
	if !errors.Is(err, netns.ErrNotEntered) {
		t.Errorf("a device is entered: %v", err)
	}
}
