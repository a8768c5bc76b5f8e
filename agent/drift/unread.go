package drift

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/pod"
)

// mostUnread limits the pods that one line lists.
const mostUnread = 16

// Unread reports the pods for which the agent does not find drift, because their network namespaces have more objects
// than the agent reads.
type Unread struct {
	Tell func(at *pod.Attachment, reason string) // is called when that begins for an attachment; nil: nothing is

	namespaces namespaces
	health     *health.Conditions
	log        *slog.Logger
	known      map[pod.Key]bool // attachments of the last poll; only Poll uses it
}

// namespaces are the network namespaces that have more objects than the agent reads.
type namespaces interface {
	// Of returns why objects in a network namespace are not read; nil if all are.
	Of(inode, device uint64) error
	// Keep forgets all namespaces for which isKept returns false.
	Keep(isKept func(inode, device uint64) bool)
}

// NewUnread returns a reporter without a pod. Poll reports.
func NewUnread(of namespaces, h *health.Conditions, log *slog.Logger) *Unread {
	h.Advise(health.Namespaces)
	return &Unread{namespaces: of, health: h, log: log, known: make(map[pod.Key]bool)}
}

// ReasonOf returns why the agent does not find the drift of a pod; "": it does.
func (u *Unread) ReasonOf(at *pod.Attachment) string {
	if u == nil {
		return ""
	}
	if err := u.namespaces.Of(at.Netns.Inode, at.Netns.Device); err != nil {
		return err.Error()
	}
	return ""
}

// Poll sets the condition by the attachments of now, and tells of the attachments that it did not know.
func (u *Unread) Poll(all []pod.Attachment) {
	u.namespaces.Keep(func(inode, device uint64) bool {
		return slices.ContainsFunc(all, func(at pod.Attachment) bool {
			return at.Netns.Inode == inode && at.Netns.Device == device
		})
	})
	found := make(map[pod.Key]bool)
	var names []string
	for i := range all {
		at := &all[i]
		reason := u.ReasonOf(at)
		if reason == "" {
			continue
		}
		found[at.Key] = true
		if name := at.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
		if !u.known[at.Key] {
			u.tell(at, reason)
		}
	}
	u.known = found
	u.health.Set(health.Namespaces, len(names) == 0, textOf(names))
}

func (u *Unread) tell(at *pod.Attachment, reason string) {
	u.log.Warn("objects in a pod are neither checked nor repaired", "pod", at.Pod.String(),
		"container", at.Key.ContainerID, "netns", at.Netns.Path, "reason", reason)
	if u.Tell != nil {
		u.Tell(at, reason)
	}
}

// textOf is the message of the condition.
func textOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	if more := len(names) - mostUnread; more > 0 {
		names = append(names[:mostUnread:mostUnread], fmt.Sprintf("and %d more", more))
	}
	return "neither checked nor repaired, because the agent cannot read all their objects: " +
		strings.Join(names, ", ") + "; weftctl pod NAMESPACE/NAME says which"
}
