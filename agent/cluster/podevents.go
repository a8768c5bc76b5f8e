package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

// reasonAddFailed is the reason of events on pods after a failed ADD.
const reasonAddFailed = "WeftAddFailed"

// reasonUnknown is the reason of events on pods with unknown annotations.
const reasonUnknown = "WeftUnknownAnnotation"

// reasonQuarantined is the reason of events on pods that are withheld from the dataplane.
const reasonQuarantined = "WeftQuarantined"

// reasonUnread is the reason of events on pods with more objects than the agent reads.
const reasonUnread = "WeftNotChecked"

// reasonOccupied is the reason of events on pods with an address that the node has too.
const reasonOccupied = "WeftAddressOfNode"

// reasonEdited is the reason of events on pods after late changes of their annotations.
const reasonEdited = "WeftAnnotationsEdited"

// PodEvents writes Events on pods of this node.
type PodEvents struct {
	Writer    *events.Writer
	Scheduler *kvscheduler.Scheduler
	Pods      *podmanager.Manager
	Owners    *owners.Index
	Multus    bool // Multus resolves the networks that pods select

	// ChangesRunning reports whether edits change the interfaces of running pods; nil: they do not.
	ChangesRunning func() bool

	edits edits
}

// Failed writes an Event on the pod of a failed ADD.
func (e *PodEvents) Failed(o podmanager.Outcome) {
	if o.Happening != podmanager.Failed || o.Pod.IsZero() {
		return
	}
	e.Writer.Tell(events.Note{
		Pod: o.Pod, Type: events.Warning, Reason: reasonAddFailed, At: time.Now(),
		Text: func() string { return e.failureText(o, e.failedOperation(o)) },
	})
}

// failedOperation returns the operation that failed the transaction of an ADD; nil: the ADD failed for another reason.
func (e *PodEvents) failedOperation(o podmanager.Outcome) *kvscheduler.OpRecord {
	if o.Record == nil {
		return nil
	}
	for _, seq := range o.Record.Transactions {
		for r := range e.Scheduler.Log(seq - 1) {
			if i := slices.IndexFunc(r.Ops, hasFailed); r.Seq == seq && i >= 0 {
				return &r.Ops[i]
			}
		}
	}
	return nil
}

func hasFailed(op kvscheduler.OpRecord) bool {
	return op.Err != "" && op.Why != "undo" && op.Outcome != "skipped"
}

// failureText describes a failure to the author of the pod: the interface that failed, the step, the reason, and
// leftovers. The text is the same for each sandbox of the pod, so Kubernetes counts repeats of one Event.
func (e *PodEvents) failureText(o podmanager.Outcome, op *kvscheduler.OpRecord) string {
	text := stepAndReason(o, op)
	if found := namesInterface.FindStringSubmatch(text); op == nil && found != nil {
		text = found[1]
	} else {
		text = e.failedInterface(o, op) + ": " + text
	}
	switch {
	case o.Record == nil:
	case len(o.Record.Stuck) > 0:
		text += fmt.Sprintf("; %d of its objects could not be undone yet", len(o.Record.Stuck))
	case o.Record.Undone:
		text += "; everything of it was undone"
	}
	return text
}

// namesInterface finds the part of an error that begins with the interface that it is about.
var namesInterface = regexp.MustCompile(`: (interfaces? [^ :]+[ :].*)$`)

// failedInterface names the interface that has the object of a failed operation, with its network; without an operation
// the main interface.
func (e *PodEvents) failedInterface(o podmanager.Outcome, op *kvscheduler.OpRecord) string {
	name := o.Key.IfName
	if o.Attachment == nil {
		return "interface " + name
	}
	if op != nil {
		if of := e.Owners.ObjectsOf([]pod.Attachment{*o.Attachment})[op.Ref]; len(of) > 0 {
			name = of[0].Interface
		}
	}
	return "interface " + name + onNetwork(o.Attachment, name)
}

// onNetwork names the network of an interface.
func onNetwork(at *pod.Attachment, name string) string {
	for _, i := range at.Interfaces {
		if i.Name == name {
			return " of network " + cmp.Or(i.Network, pod.DefaultNetwork)
		}
	}
	return ""
}

func stepAndReason(o podmanager.Outcome, op *kvscheduler.OpRecord) string {
	if op != nil {
		kind, _, _ := strings.Cut(op.Ref, "/")
		why := strings.TrimPrefix(op.Err, op.Verb+" "+op.Ref+": ")
		return fmt.Sprintf("%s %s failed: %s", inWords(op.Verb), cmp.Or(words[kind], kind), withoutIDs(why, o.Key))
	}
	return withoutIDs(o.Text, o.Key)
}

// withoutIDs removes the IDs that differ with each attempt.
func withoutIDs(text string, key pod.Key) string {
	text = strings.ReplaceAll(text, ", sandbox "+pod.ShortID(key.ContainerID), "")
	text = strings.ReplaceAll(text, key.ContainerID, "(sandbox)")
	return strings.Join(strings.Fields(text), " ")
}

func inWords(verb string) string {
	switch verb {
	case "create":
		return "making"
	case "update":
		return "changing"
	case "delete":
		return "removing"
	}
	return verb
}

// words are names of the kinds of objects for authors of pods.
var words = map[string]string{
	wire.KindVRF:            "the network's routing table",
	wire.KindInterface:      "the interface in the dataplane",
	wire.KindInterfaceVRF:   "the interface's place in its network",
	wire.KindAddress:        "the dataplane's address",
	wire.KindUnnumbered:     "the dataplane's address on the interface",
	wire.KindRoute:          "the route to the pod",
	wire.KindNeighbour:      "the pod's entry among the neighbours",
	wire.KindNamespace:      "the pod's network namespace",
	wire.KindTapPeer:        "the pod's end of the tap",
	wire.KindLinuxAddress:   "the pod's address",
	wire.KindLinuxRoute:     "a route in the pod",
	wire.KindLinuxNeighbour: "an entry among the pod's neighbours",
	wire.KindHardening:      "the settings of the kernel against false routers",
	wire.KindSysctl:         "a setting of the pod's kernel",
	wire.KindAnnouncement:   "the announcement of the pod's address",
	wire.KindBridgeDomain:   "the network's bridge",
	wire.KindBridgeMember:   "the interface's place in the network's bridge",
	wire.KindL2FIB:          "the bridge's entry for the pod",
	wire.KindMACIP:          "the filter of the pod's sources",
	wire.KindACL:            "the filter of false routers",
	wire.KindInterfaceACL:   "the filter of false routers on the interface",
	wire.KindPolicer:        "the limit of the pod's rate",
	wire.KindProxyARP:       "the answers to the pod's ARP",
	wire.KindVeth:           "the veth pair",
	wire.KindLink:           "the node's network card",
	wire.KindVLAN:           "the VLAN of the node's network card",
	wire.KindMemifSocket:    "the memif's socket",
	wire.KindMasquerade:     "the translation to the node's address",
	wire.KindTunnelNAT:      "the translation of tunnel packets",
	wire.KindPuntRedirect:   "the redirection of the node's own packets to its kernel",
	wire.KindUplink:         "the node's network card in the dataplane",
	wire.KindFile:           "a file for the pod",
	wire.KindMemifSplice:    "the connection of its direct memif",
}

// Unknown writes an Event for each unknown annotation contivpp.io/... of an added pod.
func (e *PodEvents) Unknown(o podmanager.Outcome) {
	if o.Happening != podmanager.Added || o.Pod.IsZero() {
		return
	}
	for _, fault := range pod.UnknownAnnotations(o.Attachment.Annotations) {
		e.Writer.Tell(events.Note{
			Pod:    o.Pod,
			Type:   events.Warning,
			Reason: reasonUnknown,
			At:     time.Now(),
			Text:   fault.Error,
		})
	}
}

// Quarantined writes an Event on the pod of a quarantined attachment.
func (e *PodEvents) Quarantined(s recovery.Suspicion) {
	if s.Pod.IsZero() {
		return
	}
	text := fmt.Sprintf("all interfaces that the ADD of %s made are withheld from the dataplane: %s", s.Key.IfName,
		s.Reason)
	e.Writer.Tell(events.Note{
		Pod:    s.Pod,
		Type:   events.Warning,
		Reason: reasonQuarantined,
		At:     time.Now(),
		Text:   func() string { return text },
	})
}

// Unread writes an Event on a pod if its objects are not checked.
func (e *PodEvents) Unread(at *pod.Attachment, reason string) {
	if at.Pod.IsZero() {
		return
	}
	e.Writer.Tell(events.Note{
		Pod:    at.Pod,
		Type:   events.Warning,
		Reason: reasonUnread,
		At:     time.Now(),
		Text: func() string {
			return "objects in the pod are neither checked nor repaired: " + reason + "; remove what its programs added"
		},
	})
}

// Occupied writes an Event on a pod with an address that a link of the node has too.
func (e *PodEvents) Occupied(at *pod.Attachment, text string) {
	if at.Pod.IsZero() {
		return
	}
	e.Writer.Tell(events.Note{
		Pod:    at.Pod,
		Type:   events.Warning,
		Reason: reasonOccupied,
		At:     time.Now(),
		Text: func() string {
			return text +
				": packets of the node to the pod do not reach it; remove the address from the link, or delete the pod"
		},
	})
}

// edits are the edited annotations of running pods with an Event.
type edits struct {
	mu   sync.Mutex
	told map[string]edit // by namespace and name: the UID of a deleted pod is not known
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

// Edited writes an Event on a running pod after its annotations were edited: they take effect only at ADD. Annotations
// are nil if the pod is deleted.
func (e *PodEvents) Edited(id pod.ID, annotations map[string]string) {
	var keys []string
	for _, at := range e.Pods.Attachments() {
		if annotations != nil && at.Pod.String() == id.String() && (at.Pod.UID == "" || at.Pod.UID == id.UID) {
			keys = append(keys, e.edited(&at, annotations)...)
		}
	}
	slices.Sort(keys)
	text := strings.Join(slices.Compact(keys), ", ")
	if !e.edits.once(id, text) {
		return
	}
	e.Writer.Tell(events.Note{Pod: id, Type: events.Warning, Reason: reasonEdited, At: time.Now(), Text: func() string {
		return fmt.Sprintf("%s takes effect when the pod is created again", text)
	}})
}

// edited returns the keys of annotations that differ from those read at ADD and take effect only at the next ADD. The
// annotation service-endpoint-if is not among them: it takes effect at once.
func (e *PodEvents) edited(at *pod.Attachment, is map[string]string) (keys []string) {
	all := maps.Clone(is)
	maps.Copy(all, at.Annotations)
	for key := range all {
		ours := strings.HasPrefix(key, pod.AnnotationPrefix) && key != pod.AnnotationEndpoint ||
			key == pod.AnnotationNetworks && e.knowsSelection(at) ||
			pod.IsLimit(key) && isMain(*at)
		isApplied := pod.IsEditable(key) && e.appliesEdits(at)
		if ours && !isApplied && at.Annotations[key] != is[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// appliesEdits reports whether edits change the interfaces of an attachment.
func (e *PodEvents) appliesEdits(at *pod.Attachment) bool {
	return at.Mode != pod.ModeDelegate && !at.FixedInterfaces && e.ChangesRunning != nil && e.ChangesRunning()
}

// knowsSelection reports whether an edit of the network selection can be detected. It cannot if Multus handles the
// selection, or if an older agent, which did not store it, added the pod.
func (e *PodEvents) knowsSelection(at *pod.Attachment) bool {
	_, kept := at.Annotations[pod.AnnotationNetworks]
	selected := slices.ContainsFunc(at.Interfaces, func(i pod.Interface) bool { return i.Definition != "" })
	return !e.Multus && (kept || !selected)
}
