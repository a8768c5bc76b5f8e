package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/pod"
)

// vanishedPoll is the time between two polls of the sandboxes. A poll costs one system call for each.
const vanishedPoll = 20 * time.Second

// vanished collects attachments whose network namespace is gone although no DEL came: their runtime was killed. A wrong decision takes
// the network from a running pod, and an agent that cannot see the directory of the namespaces finds none of them. So an attachment is
// collected only if its namespace is missing in two polls, and
//
//   - the API server says that the pod is deleted, or
//   - the directory of the namespace shows other namespaces, and at least half of the attachments still have theirs. For a
//     single missing namespace the directory is enough.
//
// All others are kept, and the condition "sandboxes" says so. A DEL or GC of the runtime still removes them.
type vanished struct {
	delete    func(ctx context.Context, at *pod.Attachment) error
	isDeleted func(ctx context.Context, id pod.ID) (bool, error) // asks the API server; nil: there is no cluster
	health    *health
	log       *slog.Logger

	missing map[pod.Key]bool // in the last poll
}

func newVanished(h *health, log *slog.Logger, remove func(ctx context.Context, at *pod.Attachment) error) *vanished {
	h.advise(conditionSandboxes)
	return &vanished{delete: remove, health: h, log: log}
}

// poll looks for the namespaces of all attachments, and collects those that it may.
func (v *vanished) poll(ctx context.Context, all []pod.Attachment) {
	var gone []*pod.Attachment
	for i := range all {
		if isGone(all[i].Netns) {
			gone = append(gone, &all[i])
		}
	}
	before := v.missing
	v.missing = make(map[pod.Key]bool, len(gone))
	most := len(gone) > 1 && 2*len(gone) > len(all)
	ask := v.isDeleted
	isDeleted := func(id pod.ID) bool {
		if ask == nil || id.IsZero() {
			return false
		}
		deleted, err := ask(ctx, id)
		if err != nil {
			v.log.Warn("API server not asked whether pods without network namespaces are deleted", "pod", id.String(), "err", err)
			ask = nil // each question may take seconds
		}
		return deleted
	}
	var kept []*pod.Attachment
	for _, at := range gone {
		v.missing[at.Key] = true
		switch {
		case !before[at.Key]: // it may be back at the next poll
		case !most && isDirectoryVisible(at.Netns.Path), isDeleted(at.Pod):
			if err := v.delete(ctx, at); err != nil {
				v.log.Warn("attachment without a network namespace not deleted", "pod", at.Pod.String(), "container", at.Key.ContainerID, "err", err)
			}
		default:
			kept = append(kept, at)
		}
	}
	v.report(kept, len(all))
}

// report sets the condition, and logs it when it begins.
func (v *vanished) report(kept []*pod.Attachment, all int) {
	if len(kept) == 0 {
		v.health.set(conditionSandboxes, true, "")
		return
	}
	message := fmt.Sprintf("%d of %d attachments have lost their network namespaces (%s at %s); they are kept, because the agent may not see the "+
		"directory of the namespaces; a DEL or GC of the runtime removes them", len(kept), all, kept[0].Name(), kept[0].Netns.Path)
	if v.health.holds(conditionSandboxes) {
		v.log.Warn("attachments without network namespaces are kept", "reason", message)
	}
	v.health.set(conditionSandboxes, false, message)
}

// isGone reports whether a path no longer leads to the network namespace that it led to. A path that cannot be inspected, because too
// many files are open for example, is not gone.
func isGone(n pod.Netns) bool {
	inode, device, err := linux.Inspect(n.Path)
	if err != nil {
		return errors.Is(err, linux.ErrGone) || errors.Is(err, linux.ErrHost)
	}
	return inode != n.Inode || device != n.Device
}

// isDirectoryVisible reports whether the agent sees namespaces where the path of a missing one leads: a namespace that is missing there
// is gone. Without a mount of /run/netns, or without propagation of mounts, the directory shows none. The directories of processes in
// /proc end with their processes.
func isDirectoryVisible(path string) bool {
	return strings.HasPrefix(path, "/proc/") || linux.HasNamespaces(filepath.Dir(path))
}
