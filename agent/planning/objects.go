package planning

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/shown"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// objects finds the scheduler's objects that a request names, and their phases.
type objects struct {
	dataplane

	scheduler    *kvscheduler.Scheduler
	attachments  func() []pod.Attachment
	ofAttachment func(*pod.Attachment) []string // keys
}

// selected returns the objects that a selector names, sorted by key: a key, a prefix of keys, or NAMESPACE/NAME of a
// pod. An unknown name is an error with the code
// NotFound.
func (o *objects) selected(selector string) ([]kvscheduler.Ref, error) {
	view := o.scheduler.View()
	kind, name, isKey := strings.Cut(selector, "/")
	if isKey && !slices.Contains(wire.Kinds(), kind) {
		return o.objectsOfPod(kind, name)
	}
	if ref, err := kvscheduler.ParseRef(selector); err == nil {
		if _, known := view.Status(ref); known {
			return []kvscheduler.Ref{ref}, nil
		}
	}
	var refs []kvscheduler.Ref
	for _, kind := range wire.Kinds() {
		for name := range view.All(kvscheduler.Kind(kind)) {
			if strings.HasPrefix(wire.Key(kind, name), selector) {
				refs = append(refs, kvscheduler.Ref{Kind: kvscheduler.Kind(kind), Name: name})
			}
		}
	}
	if len(refs) == 0 {
		return nil, status.Errorf(codes.NotFound, "no objects with prefix %q; weftctl objects lists all", selector)
	}
	return sorted(refs), nil
}

func (o *objects) objectsOfPod(namespace, name string) ([]kvscheduler.Ref, error) {
	var refs []kvscheduler.Ref
	for _, a := range o.attachments() {
		if a.Pod.Namespace != namespace || a.Pod.Name != name {
			continue
		}
		for _, key := range o.ofAttachment(&a) {
			ref, err := kvscheduler.ParseRef(key)
			if err != nil {
				return nil, status.Errorf(codes.Internal, "objects of pod %s/%s: %v", namespace, name, err)
			}
			refs = append(refs, ref)
		}
	}
	if len(refs) == 0 {
		return nil, status.Errorf(codes.NotFound,
			"%q is neither a key (no kind has the name %q) nor a pod that is attached on this node; weftctl objects and weftctl attachments list them",
			namespace+"/"+name, namespace)
	}
	return sorted(refs), nil
}

func sorted(refs []kvscheduler.Ref) []kvscheduler.Ref {
	slices.SortFunc(refs, func(a, b kvscheduler.Ref) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(refs)
}

// phaseOf returns the phase of an object for operators; "" if the object is neither desired nor known.
func (o *objects) phaseOf(view kvscheduler.View, ref kvscheduler.Ref) string {
	status, known := view.Status(ref)
	if !known {
		return ""
	}
	return shown.Phase(ref.Kind, status, o.down() != nil)
}

// dataplane knows whether the dataplane is connected.
type dataplane struct {
	down func() error // why not; nil: it is
}

// lastKnown says that the dataplane is not connected, and which values a reply shows instead; "" while it is connected.
func (d *dataplane) lastKnown(what string) string {
	down := d.down()
	if down == nil {
		return ""
	}
	return fmt.Sprintf("the dataplane is not connected (%v): %s", down, what)
}
