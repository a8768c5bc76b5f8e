package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weftnet/weft/k8s"
	"github.com/weftnet/weft/pod"
)

// reasonEdited is the reason of events on pods whose annotations were edited too late.
const reasonEdited = "WeftAnnotationsEdited"

// edits are the annotations that were edited on pods that run, and told of.
type edits struct {
	mu   sync.Mutex
	told map[string]edit // by namespace and name, for a pod that is gone has no more than that
}

type edit struct{ uid, keys string }

// once reports whether an edit is new; "" forgets the pod.
func (e *edits) once(id pod.ID, keys string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := edit{id.UID, keys}
	switch {
	case keys == "":
		delete(e.told, id.String())
		return false
	case e.told[id.String()] == now:
		return false
	case e.told == nil:
		e.told = make(map[string]edit)
	}
	e.told[id.String()] = now
	return true
}

// noticeEdit tells who edits the annotations of a pod that runs that they are read when a pod is wired, and not later.
// Annotations are nil when the pod is gone.
func (a *Agent) noticeEdit(id pod.ID, annotations map[string]string) {
	var keys []string
	for _, at := range a.pods.Attachments() {
		if annotations != nil && at.Pod.String() == id.String() && (at.Pod.UID == "" || at.Pod.UID == id.UID) {
			keys = append(keys, a.edited(&at, annotations)...)
		}
	}
	slices.Sort(keys)
	text := strings.Join(slices.Compact(keys), ", ")
	if !a.edits.once(id, text) {
		return
	}
	a.events.Tell(k8s.Note{Pod: id, Type: k8s.Warning, Reason: reasonEdited, At: time.Now(), Text: func() string {
		return fmt.Sprintf("%s takes effect when the pod is created again", text)
	}})
}

// edited returns the keys of annotations that differ from those read at ADD and take effect only at the next ADD. The annotation
// service-endpoint-if is not among them: it takes effect at once.
func (a *Agent) edited(at *pod.Attachment, is map[string]string) (keys []string) {
	all := maps.Clone(is)
	maps.Copy(all, at.Annotations)
	for key := range all {
		ours := strings.HasPrefix(key, pod.AnnotationPrefix) && key != pod.AnnotationEndpoint || key == pod.AnnotationNetworks && a.knowsSelection(at)
		if ours && at.Annotations[key] != is[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// knowsSelection reports whether an edit of the network selection can be detected. It cannot if Multus handles the selection, or if an
// older agent, which did not store it, added the pod.
func (a *Agent) knowsSelection(at *pod.Attachment) bool {
	_, kept := at.Annotations[pod.AnnotationNetworks]
	selected := slices.ContainsFunc(at.Interfaces, func(i pod.Interface) bool { return i.Definition != "" })
	return !a.config.Kubernetes.Multus && (kept || !selected)
}
