package podmanager

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func contains(text, part string) bool {
	return strings.Contains(text, part) && !strings.Contains(text, "\n")
}

func bytesOf(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestARepeatedAddHasTheSameReplyAndChangesNothing(t *testing.T) {
	n := newNode(t)
	first := n.add(t, "c1", "/run/netns/a")
	changes := len(n.committer.Changes())
	n.set(func() { n.alias["/run/netns/a"] = "weft:weft/c1/eth0" })
	second := n.add(t, "c1", "/run/netns/a")
	if bytesOf(t, first) != bytesOf(t, second) {
		t.Errorf("first %v\nthen %v", first, second)
	}
	if got := len(n.committer.Changes()); got != changes {
		t.Errorf("the repeated ADD committed %d changes", got-changes)
	}
	n.want(t, "c1")
}

func TestARepeatedAddAfterARestartHasTheSameReply(t *testing.T) {
	n := newNode(t)
	first := n.add(t, "c1", "/run/netns/a")
	kept := n.Attachments()

	restarted := newNodeWith(t, &kept[0])
	if second := restarted.add(t, "c1", "/run/netns/a"); bytesOf(t, first) != bytesOf(t, second) {
		t.Errorf("first %v\nthen %v", first, second)
	}
}

func newNodeWith(t *testing.T, attachments ...*pod.Attachment) *node {
	t.Helper()
	n := newNode(t)
	n.Restore(attachments)
	return n
}

func TestAnAddOfAKnownKeyInAnotherNamespaceIsRefused(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/b")), 4, "it is wired already, in the network namespace that was /run/netns/a")

	n.set(func() { n.netns["/run/netns/a"] = 99 }) // the same path, mounted anew
	wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/a")), 4, "it is wired already")
	n.want(t, "c1")
}

func TestASecondSandboxOfAPodLivesBesideTheFirst(t *testing.T) {
	n := newNode(t)
	n.add(t, "old", "/run/netns/a")
	n.add(t, "new", "/run/netns/b")
	n.want(t, "old", "new")

	if err := n.del(t, "old"); err != nil { // late
		t.Error(err)
	}
	n.want(t, "new")
}

func TestAFailedAddLeavesNothing(t *testing.T) {
	n := newNode(t)
	n.wiring = func(context.Context, *pod.AddPod) error {
		return pod.Errorf(pod.CodePoolExhausted, "pod shop/cart-0: pool default is exhausted")
	}
	err := n.refusedAdd(t, addOf("c1", "/run/netns/a"))
	wantError(t, err, 100, "pod shop/cart-0: pool default is exhausted")
	if !strings.HasPrefix(err.GetDetails(), "event ") {
		t.Errorf("the details %q do not say which event", err.GetDetails())
	}
	n.want(t)
	n.wiring = nil
	n.add(t, "c1", "/run/netns/a")
}

func TestWhatAnAddFailsWith(t *testing.T) {
	broken := errors.New("create tap: permission denied")
	tests := map[string]struct {
		spoil func(n *node)
		code  uint
		text  string
	}{
		"the dataplane refuses": {func(n *node) {
			n.committer.Before(func(context.Context, eventloop.Change) error { return broken })
		}, 105, "create tap: permission denied"},
		"the state cannot be saved": {func(n *node) {
			n.saver.Before(func(context.Context, []eventloop.Saved) error { return errors.New("disk full") })
		}, 5, "disk full"},
		"a handler panics": {func(n *node) {
			n.wiring = func(context.Context, *pod.AddPod) error { panic("index out of range") }
		}, 999, "panic: index out of range"},
		"the commit takes too long": {func(n *node) {
			n.committer.Before(func(context.Context, eventloop.Change) error { return context.DeadlineExceeded })
		}, 106, "deadline exceeded"},
		"it is paused":       {func(n *node) { n.paused = "upgrade of the kernel" }, 11, "new pods are paused: upgrade of the kernel"},
		"the namespace died": {func(n *node) { delete(n.netns, "/run/netns/a") }, 8, "it is not there"},
		"a foreign link":     {func(n *node) { n.alias["/run/netns/a"] = "" }, 4, "interface eth0 exists already in the sandbox and is not Weft's"},
		"a link of another sandbox": {func(n *node) {
			n.alias["/run/netns/a"] = "weft:weft/c2/eth0"
		}, 4, "exists already"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tt.spoil(n)
			wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/a")), tt.code, tt.text)
			n.committer.Before(nil)
			n.saver.Before(nil)
			if left := n.Attachments(); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// rows: AWS-28
func TestARequestThatIsWrongIsRefusedBeforeTheLoop(t *testing.T) {
	tests := map[string]struct {
		spoil func(req *weftv1.AddRequest)
		code  uint
		text  string
	}{
		"a protocol of the future":    {func(r *weftv1.AddRequest) { r.Caller.Protocol = 9 }, 107, "speaks protocol 9"},
		"no protocol":                 {func(r *weftv1.AddRequest) { r.Caller = nil }, 107, "of unknown version"},
		"a mode that is not served":   {func(r *weftv1.AddRequest) { r.Mode = "dance" }, 7, `mode "dance" is none that this agent knows`},
		"a key with a slash":          {func(r *weftv1.AddRequest) { r.Attachment.ContainerId = "a/b" }, 4, "no legal name"},
		"a key with a hole":           {func(r *weftv1.AddRequest) { r.Attachment.Network = "" }, 4, "are all needed"},
		"a relative namespace":        {func(r *weftv1.AddRequest) { r.Netns = "netns/a" }, 4, "not an absolute path"},
		"an address that is none":     {func(r *weftv1.AddRequest) { r.Ips = []string{"10.1.1"} }, 7, `requested address "10.1.1"`},
		"two addresses of one family": {func(r *weftv1.AddRequest) { r.Ips = []string{"10.1.1.1", "10.1.1.2/24"} }, 7, "one of this family"},
		"a multicast MAC":             {func(r *weftv1.AddRequest) { r.Mac = "01:00:00:00:00:01" }, 7, "not a unicast"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			req := addOf("c1", "/run/netns/a")
			tt.spoil(req)
			wantError(t, n.refusedAdd(t, req), tt.code, tt.text)
			n.want(t)
		})
	}
}

func TestAnAddBeforeTheAgentIsReadySaysStarting(t *testing.T) {
	n := newNode(t)
	n.set(func() { n.notReady = errors.New("dataplane: not connected yet") })
	err := n.refusedAdd(t, addOf("c1", "/run/netns/a"))
	wantError(t, err, 11, "agent is starting: dataplane: not connected yet")
	if err.GetDetails() != starting {
		t.Errorf("details are %q", err.GetDetails())
	}
}

// rows: AWS-41
func TestWhoGivesTheAnnotations(t *testing.T) {
	n := newNode(t)
	n.config.Annotations = func(context.Context, pod.ID) (map[string]string, string, error) {
		return map[string]string{"contivpp.io/custom-if": "tap2/tap"}, "cache", nil
	}
	var got, from string
	n.wiring = func(_ context.Context, ev *pod.AddPod) error {
		got, from = ev.Annotations["contivpp.io/custom-if"], ev.AnnotationsFrom
		return nil
	}
	req := addOf("c1", "/run/netns/a")
	req.HasAnnotations, req.Annotations = true, map[string]string{"contivpp.io/custom-if": "tap1/tap", "other": "x"}
	if reply, err := n.Add(t.Context(), req); err != nil || reply.GetError() != nil || got != "tap1/tap" || from != "runtime" {
		t.Errorf("%q from %s (%v, %v)", got, from, reply.GetError(), err)
	}
	if a, _ := n.Attachment(keyOfContainer("c1")); len(a.Annotations) != 1 {
		t.Errorf("kept %v", a.Annotations)
	}
	n.add(t, "c2", "/run/netns/b")
	if got != "tap2/tap" || from != "cache" {
		t.Errorf("%q from %s", got, from)
	}
	req = addOf("c3", "/run/netns/b")
	req.Pod = nil
	if reply, err := n.Add(t.Context(), req); err != nil || reply.GetError() != nil || got != "" || from != "none" {
		t.Errorf("%q from %s", got, from)
	}
}

func TestAnAddDeletesOlderSandboxesOfThePodThatAreGone(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	gone := false
	n.config.IsGone = func(netns pod.Netns) bool { return gone && netns.Path == "/run/netns/a" }
	n.add(t, "c2", "/run/netns/b")
	if all := n.Attachments(); len(all) != 2 {
		t.Errorf("the older sandbox is there, and %d attachments are left", len(all))
	}
	gone = true
	n.add(t, "c3", "/run/netns/b")
	for _, at := range n.Attachments() {
		if at.Key == keyOfContainer("c1") {
			t.Error("the attachment of the older sandbox is left")
		}
	}
}

func TestAnAddVoidsAQueuedDelete(t *testing.T) {
	n := newNode(t)
	var voided []pod.Key
	n.config.Void = func(_ context.Context, key pod.Key) error { voided = append(voided, key); return nil }
	n.add(t, "c1", "/run/netns/a")
	if len(voided) != 1 || voided[0] != keyOfContainer("c1") {
		t.Errorf("voided %v", voided)
	}
}
