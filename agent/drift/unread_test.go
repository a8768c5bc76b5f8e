package drift

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/pod"
)

// full are network namespaces with too many objects, by inode.
type full map[uint64]error

func (f full) Of(inode, _ uint64) error { return f[inode] }

func (f full) Keep(isKept func(inode, device uint64) bool) {
	maps.DeleteFunc(f, func(inode uint64, _ error) bool { return !isKept(inode, 4) })
}

// unread is a reporter with what it said.
type unread struct {
	*Unread
	full full
	log  bytes.Buffer
	told []string
}

func newUnread() *unread {
	u := &unread{full: full{}}
	u.Unread = NewUnread(u.full, health.New("", slog.New(slog.DiscardHandler)),
		slog.New(slog.NewTextHandler(&u.log, nil)))
	u.Tell = func(at *pod.Attachment, reason string) {
		u.told = append(u.told, at.Key.ContainerID+" "+at.Key.IfName+": "+reason)
	}
	return u
}

func (u *unread) message() (message string, holds bool) {
	return u.health.Failure(health.Namespaces), u.health.Holds(health.Namespaces)
}

// attachmentIn returns an attachment of the pod with the name, in a network namespace.
func attachmentIn(inode uint64, name, ifName string) pod.Attachment {
	return pod.Attachment{
		Key:   pod.Key{Network: "weft", ContainerID: name, IfName: ifName},
		Pod:   pod.ID{Namespace: "shop", Name: name},
		Netns: pod.Netns{Path: "/run/netns/" + name, Inode: inode, Device: 4},
	}
}

func TestAnUnreadNamespaceIsAConditionOfItsPodAlone(t *testing.T) {
	u := newUnread()
	web := attachmentIn(1, "web", "eth0")
	second := attachmentIn(1, "web", "net1")
	other := attachmentIn(2, "other", "eth0")
	all := []pod.Attachment{web, second, other}
	u.Poll(all)
	if message, holds := u.message(); !holds || len(u.told) > 0 {
		t.Errorf("before: %s, told %q", message, u.told)
	}
	u.full[1] = errors.New("linux.route: more objects than the agent reads")
	for range 3 {
		u.Poll(all)
	}
	message, holds := u.message()
	if holds || strings.Count(message, "pod shop/web") != 1 || strings.Contains(message, "other") {
		t.Errorf("condition: %s", message)
	}
	if len(u.told) != 2 || !strings.HasPrefix(u.told[0], "web eth0: linux.route: more objects") ||
		strings.Count(u.log.String(), "level=WARN") != 2 {
		t.Errorf("told %q, log:\n%s", u.told, u.log.String())
	}
	if u.ReasonOf(&web) == "" || u.ReasonOf(&other) != "" {
		t.Errorf("reasons: %q, %q", u.ReasonOf(&web), u.ReasonOf(&other))
	}
	delete(u.full, 1) // the pod's programs removed what they added
	u.Poll(all)
	if message, holds := u.message(); !holds {
		t.Errorf("after the objects can be read: %s", message)
	}
	u.full[1] = errors.New("linux.route: more objects than the agent reads")
	u.Poll(all)
	if _, holds := u.message(); holds || len(u.told) != 4 {
		t.Errorf("the second time: told %q", u.told)
	}
	u.Poll([]pod.Attachment{other}) // the pod is deleted
	if message, holds := u.message(); !holds || u.ReasonOf(&web) != "" {
		t.Errorf("after the deletion: %s, %s", message, u.ReasonOf(&web))
	}
}

func TestTheListOfUnreadPodsIsBounded(t *testing.T) {
	u := newUnread()
	var all []pod.Attachment
	for n := range 2 * mostUnread {
		all = append(all, attachmentIn(uint64(n+1), fmt.Sprintf("web-%02d", n), "eth0"))
		u.full[uint64(n+1)] = errors.New("linux.route: more objects than the agent reads")
	}
	u.Poll(all)
	message, _ := u.message()
	if strings.Count(message, "pod shop/web-") != mostUnread ||
		!strings.Contains(message, fmt.Sprintf("and %d more", mostUnread)) {
		t.Errorf("condition: %s", message)
	}
}
