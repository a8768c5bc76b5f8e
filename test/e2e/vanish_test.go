package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// attachment is an attachment in the output of weftctl.
type attachment struct {
	Pod struct {
		Name string `json:"name"`
	} `json:"pod"`
	Attachment struct {
		ContainerID string `json:"containerId"`
	} `json:"attachment"`
	Netns string `json:"netns"`
}

// attachments returns the attachments of a node.
func (s *space) attachments(ctx context.Context, node string) (list []attachment, err error) {
	s.t.Helper()
	var output struct {
		Attachments []attachment `json:"attachments"`
	}
	err = s.weftctl(ctx, node, &output, "attachments")
	return output.Attachments, err
}

// of returns a pod's attachment; nil = none.
func of(list []attachment, pod string) *attachment {
	i := slices.IndexFunc(list, func(a attachment) bool { return a.Pod.Name == pod })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// A killed runtime sends no DEL. The agent finds attachments without processes and namespace.
func TestVanishedSandboxIsCollected(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	for _, name := range []string{"stays", "victim"} {
		s.create(name, "n2")
	}
	s.ready("stays")
	s.ready("victim")
	list, err := s.attachments(t.Context(), "n2")
	s.must(err)
	victim := of(list, "victim")
	if victim == nil || of(list, "stays") == nil {
		t.Fatalf("attachments of n2: %+v", list)
	}
	n := s.c.Node("n2")
	s.must(errors.Join(n.Kubelet.Kill(), n.Containerd.Kill()))
	s.must(vanish(t.Context(), n, victim.Netns))
	began := time.Now()
	s.must(cluster.Eventually(t.Context(), "the agent has deleted the attachment", func(ctx context.Context) error {
		now, err := s.attachments(ctx, "n2")
		if err == nil && of(now, "victim") != nil {
			err = errors.New("the attachment still exists")
		}
		if err == nil && of(now, "stays") == nil {
			t.Error("the other pod's attachment is deleted too")
		}
		return err
	}))
	t.Logf("the attachment of the vanished sandbox was deleted after %s", time.Since(began).Round(time.Second))
	s.must(errors.Join(n.Containerd.Start(), n.AwaitContainerd(t.Context()), n.Kubelet.Start(),
		n.AwaitKubelet(t.Context()), n.AwaitReady(t.Context())))
	s.deleteAll()
	s.mustLeaveNothing()
}

// vanish kills every process of a network namespace and their shims, and removes the namespace.
func vanish(ctx context.Context, n *cluster.Node, path string) error {
	var victims []int
	err := n.Do(func() (err error) {
		victims, err = within(path)
		return err
	})
	if err == nil && len(victims) == 0 {
		err = fmt.Errorf("no process is in %s", path)
	}
	if err != nil {
		return err
	}
	if err := n.Kill(ctx, victims...); err != nil {
		return err
	}
	return n.Do(func() error { return errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path)) })
}

// within returns the processes of a network namespace, each shim before its processes.
func within(path string) (pids []int, err error) {
	netns, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	inode := netns.Sys().(*syscall.Stat_t).Ino
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(filepath.Base(p))
		its, gone := os.Stat(p + "/ns/net")
		if err != nil || gone != nil || its.Sys().(*syscall.Stat_t).Ino != inode {
			continue
		}
		if shim := parentOf(p); isShim(shim) {
			pids = append(pids, shim)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// parentOf reads the parent of a process from its directory; 0 if the process has ended.
func parentOf(process string) int {
	raw, err := os.ReadFile(process + "/stat")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(raw), ") ")
	words := strings.Fields(after)
	if len(words) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(words[1])
	return parent
}

func isShim(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.HasPrefix(string(name), "containerd-shim")
}
