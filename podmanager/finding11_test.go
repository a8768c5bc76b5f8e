package podmanager

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Finding 11: such a DEL failed for ever, as no ADD can have succeeded.
func TestFinding11DELThatCannotMatchAnythingSucceeds(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	for name, spoil := range map[string]func(a *weftv1.Attachment){
		"a long container id":            func(a *weftv1.Attachment) { a.ContainerId = strings.Repeat("c", 257) },
		"a long network":                 func(a *weftv1.Attachment) { a.Network = strings.Repeat("n", 257) },
		"an interface that is not ASCII": func(a *weftv1.Attachment) { a.IfName = "ethé" },
		"a long interface":               func(a *weftv1.Attachment) { a.IfName = "a234567890123456" },
		"a container id with a slash":    func(a *weftv1.Attachment) { a.ContainerId = "../c1" },
		"a reserved interface":           func(a *weftv1.Attachment) { a.IfName = "default" },
	} {
		add := addOf("c1", "/run/netns/a")
		spoil(add.Attachment)
		reply, err := n.Delete(t.Context(), &weftv1.DeleteRequest{Caller: caller(), Attachment: add.Attachment})
		if err != nil || reply.GetError() != nil {
			t.Errorf("%s: DEL: %v, %v", name, reply.GetError(), err)
		}
		if e := n.refusedAdd(t, add); e.GetCode() != 4 {
			t.Errorf("%s: ADD: %v", name, e)
		}
		check, err := n.Check(t.Context(), &weftv1.CheckRequest{Caller: caller(), Attachment: add.Attachment, Netns: "/run/netns/a"})
		if err != nil || check.GetError() == nil {
			t.Errorf("%s: CHECK succeeded: %v", name, err)
		}
	}
	hole := &weftv1.Attachment{Network: "weft", IfName: "eth0"}
	if reply, err := n.Delete(t.Context(), &weftv1.DeleteRequest{Caller: caller(), Attachment: hole}); err != nil || reply.GetError().GetCode() != 4 {
		t.Errorf("DEL without a container: %v, %v", reply.GetError(), err)
	}
	collect := &weftv1.CollectRequest{Caller: caller(), Network: "weft", Valid: []*weftv1.Attachment{
		attachment("c1"), attachment(strings.Repeat("c", 257)), {ContainerId: "c1", IfName: "ethé"},
	}}
	if reply, err := n.Collect(t.Context(), collect); err != nil || reply.GetError() != nil || len(reply.GetRemoved()) > 0 {
		t.Errorf("GC: %v, %v", reply, err)
	}
	n.want(t, "c1")
}

// Finding 11: these names failed in the dataplane, with its error.
func TestFinding11ReservedInterfaceNamesAreRefusedBeforeTheLoop(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"default", "all", "lo", "eth%d"} {
		req := addOf("c1", "/run/netns/a")
		req.Attachment.IfName = name
		wantError(t, n.refusedAdd(t, req), 4, "cannot be the name of a pod's interface")
	}
	n.want(t)
}

// Finding 11: errors quoted annotations of 16 KiB, in the reply and in the record of the event, which is stored.
func TestFinding11ErrorsAreBounded(t *testing.T) {
	n := newNode(t)
	for name, err := range map[string]error{
		"of a handler": pod.Errorf(pod.CodeInvalidAnnotation, "item %q", strings.Repeat("€", 6000)),
		"of another":   &longError{},
	} {
		n.wiring = func(context.Context, *pod.AddPod) error { return err }
		e := n.refusedAdd(t, addOf("c1", "/run/netns/a"))
		if len(e.GetMsg()) > 2048 || !utf8.ValidString(e.GetMsg()) || !strings.Contains(e.GetMsg(), "€") || !strings.HasSuffix(e.GetMsg(), " bytes cut)") {
			t.Errorf("%s: %d bytes: %.100s", name, len(e.GetMsg()), e.GetMsg())
		}
	}
	if text := pod.Errorf(pod.CodeInvalidAnnotation, "item %q", strings.Repeat("x", 16<<10)).Error(); len(text) > 2048 {
		t.Errorf("an error of a pod has %d bytes", len(text))
	}
}

// longError is an error of what is no handler.
type longError struct{}

func (longError) Error() string { return strings.Repeat("€", 6000) }
