package podmanager

import (
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/pod"
)

var edited = pod.ID{Namespace: "shop", Name: "cart-0", UID: "u1"}

func requesting(interfaces, options string) map[string]string {
	annotations := map[string]string{pod.AnnotationCustom: interfaces}
	if options != "" {
		annotations[pod.AnnotationOptions] = options
	}
	return annotations
}

// requested returns the annotation of an attachment that an edit changes, in memory and in the state file.
func (n *node) requested(t *testing.T, container string) string {
	t.Helper()
	key := keyOfContainer(container)
	known, _ := n.Attachment(key)
	saved, _ := n.saver.Bucket(bucket)[key.String()].(*pod.Attachment)
	if saved == nil || saved.Annotations[pod.AnnotationCustom] != known.Annotations[pod.AnnotationCustom] {
		t.Errorf("%s: the state file has %+v, the memory %v", container, saved, known.Annotations)
	}
	return known.Annotations[pod.AnnotationCustom]
}

// A runtime may make a new sandbox before it deletes the old one.
func TestAnEditChangesTheNewestSandbox(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.set(func() { n.now = n.now.Add(time.Minute) })
	n.add(t, "c2", "/run/netns/b")
	changes, err := n.Edits().Apply(t.Context(), edited, requesting("t1/tap", ""))
	if err != nil || changes.String() != "made: t1 on network default" {
		t.Fatalf("changes %q, %v", changes, err)
	}
	if older, newer := n.requested(t, "c1"), n.requested(t, "c2"); older != "" || newer != "t1/tap" {
		t.Errorf("the older sandbox requests %q, the newer one %q", older, newer)
	}
}

func TestNoEditIsAppliedWhileNewInterfacesArePaused(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	n.set(func() { n.paused = "for an upgrade" })
	_, err := n.Edits().Apply(t.Context(), edited, requesting("t1/tap", ""))
	if err == nil || !strings.Contains(err.Error(), "new interfaces are paused: for an upgrade") {
		t.Errorf("error %v", err)
	}
	if got := n.requested(t, "c1"); got != "" {
		t.Errorf("the attachment requests %q", got)
	}
	n.set(func() { n.paused = "" })
	if _, err := n.Edits().Apply(t.Context(), edited, requesting("t1/tap", "")); err != nil {
		t.Error(err)
	}
}

func TestAnEditReadsTheClaimsOfItsNewInterfaces(t *testing.T) {
	n, store := newClaimNode(t)
	n.add(t, "c1", "/run/netns/a")
	store.gone = pod.Errorf(pod.CodeInvalidAnnotation, "there is no IPAMClaim shop/db-0")
	now := requesting("t1/tap", `{"t1": {"ipamClaim": "db-0"}}`)
	_, err := n.Edits().Apply(t.Context(), edited, now)
	if err == nil || !strings.Contains(err.Error(), "there is no IPAMClaim shop/db-0") {
		t.Errorf("error %v", err)
	}
	store.gone = nil
	if _, err := n.Edits().Apply(t.Context(), edited, now); err != nil {
		t.Error(err)
	}
}
