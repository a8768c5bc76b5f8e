package model

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftnet/weft/vswitch/model/modeltest"
	"github.com/weftnet/weft/vswitch/port"
)

func TestNamespaceNamesAreThoseOfVPP(t *testing.T) {
	for name, want := range map[string]string{
		"":                   "",
		"/var/run/netns/pod": "/var/run/netns/pod",
		"pod":                "/var/run/netns/pod",
		"pid:17":             "/proc/17/ns/net",
		"pid:":               "invalid",
		"pid:-1":             "invalid",
		"pid:0":              "invalid",
		"pid:1/../2":         "invalid",
		"..":                 "invalid",
		"a/b":                "invalid",
	} {
		got, err := namespacePath(name)
		if (err != nil) != (want == "invalid") || err == nil && got != want {
			t.Errorf("%q: %q, %v; wanted %q", name, got, err, want)
		}
	}
}

// FuzzNamespace checks that a relative name results in a path below /proc or /var/run/netns.
func FuzzNamespace(f *testing.F) {
	for _, name := range []string{"", "pod", "/run/netns/pod", "pid:17", "pid:1/../2", "..", "pid:", "pid:+1"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		path, err := namespacePath(name)
		if err != nil || path == name {
			return
		}
		if clean := filepath.Clean(path); clean != path ||
			filepath.Dir(path) != "/var/run/netns" && !strings.HasPrefix(path, "/proc/") {
			t.Errorf("%q is %q", name, path)
		}
	})
}

func TestTapHostSideIsUpAndOffloadsOnlyWithGSO(t *testing.T) {
	for flags, offload := range map[TapFlags]bool{
		0:                    false,
		TapChecksum:          false,
		TapGSO:               true,
		TapGSO | TapChecksum: true,
	} {
		b := newTestModel()
		index, err := b.Taps.Add(Tap{ID: 3, Flags: flags})
		do(t, err)
		b.engine.Look(func(s modeltest.State) {
			if c := s.Taps[index]; !c.Up || c.NoOffload == offload {
				t.Errorf("flags %d: %+v", flags, c)
			}
		})
	}
}

func TestTapHasRequestedNumberOfQueues(t *testing.T) {
	for _, queues := range []int{0, 1, 16} {
		b := newTestModel()
		index, err := b.Taps.Add(Tap{ID: 3, Queues: queues})
		do(t, err)
		b.engine.Look(func(s modeltest.State) {
			if c := s.Taps[index]; c.Queues != queues {
				t.Errorf("requested %d: %+v", queues, c)
			}
		})
	}
}

func TestTapErrorsAreVPPRetvals(t *testing.T) {
	for cause, want := range map[error]Retval{
		port.ErrNamespaceGone: SyscallError2,
		port.ErrNameInUse:     SyscallError3,
		errors.New("other"):   SyscallError3,
	} {
		b := newTestModel()
		b.engine.FailPorts(cause)
		if _, err := b.Taps.Add(Tap{ID: NoIndex}); !errors.Is(err, want) {
			t.Errorf("%v: %v, wanted %v", cause, err, want)
		}
	}
}

func TestInterfaceIndexesWrapAroundAndSkipUsedOnes(t *testing.T) {
	b := newTestModel()
	kept := b.tap(t)
	b.Interfaces.lastIndex = 1<<16 - 1
	if next := b.tap(t); next == 0 || next == kept {
		t.Fatalf("index %d is in use", next)
	}
}
