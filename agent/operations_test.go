package agent

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// While the dataplane is down, weftctl status must not show its objects as in sync, and kubelet must not allocate
// devices.
func TestStatusAndDevicesFollowTheDataplane(t *testing.T) {
	const memifs = 4
	l := newLabWith(t, programs.Build(t), node.Options{Memifs: memifs})
	devices := func(allocatable int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Kubelet.Await(ctx, node.Memif, allocatable); err != nil {
			t.Errorf("%d memifs are not allocatable: %v", allocatable, err)
		}
	}
	devices(memifs)
	a := l.pod("a")
	l.cni("ADD", a, nil)
	type status struct {
		Dataplane  string
		Objects    map[string]int
		Conditions []struct {
			Name, Message string
			OK            bool
		}
	}
	repaired := func(s status) (ok bool, message string) {
		for _, c := range s.Conditions {
			if c.Name == "repaired" {
				return c.OK, c.Message
			}
		}
		return false, "no condition"
	}
	shows := func(what string, expected func(s status) bool) {
		l.eventually(what, func() bool {
			output, _ := l.Weftctl(t.Context(), "status", "-o", "json") // an error while the agent is not ready
			var s status
			return json.Unmarshal([]byte(output), &s) == nil && expected(s)
		})
	}
	shows("all is in sync", func(s status) bool {
		ok, _ := repaired(s)
		return ok && s.Objects["Unknown"] == 0 && !strings.Contains(s.Dataplane, "not connected")
	})
	pid := l.DataplanePID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	shows("the dataplane's objects are unknown", func(s status) bool {
		ok, message := repaired(s)
		return !ok && strings.Contains(message, "the dataplane is not connected") && s.Objects["Unknown"] > 0 &&
			strings.HasSuffix(s.Dataplane, "(not connected)")
	})
	l.listsUnknownInterfaces()
	devices(0)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	devices(memifs)
	shows("all is in sync again", func(s status) bool {
		ok, _ := repaired(s)
		return ok && s.Objects["Unknown"] == 0
	})
	l.cni("DEL", a, nil)
}

func (l *lab) listsUnknownInterfaces() {
	l.Helper()
	listed, err := l.Weftctl(l.Context(), "objects", "vpp.interface")
	if err != nil || !strings.Contains(listed, "Unknown") || strings.Contains(listed, "InSync") {
		l.Errorf("weftctl objects: %v\n%s", err, listed)
	}
}
