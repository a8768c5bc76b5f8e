package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/k8s"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

// reasonAddFailed is the reason of events on pods that could not be wired.
const reasonAddFailed = "WeftAddFailed"

// reportFailure tells of a failed ADD by an event on its pod.
func (a *Agent) reportFailure(o podmanager.Outcome) {
	if o.Happening != podmanager.Failed || o.Pod.IsZero() {
		return
	}
	a.events.Tell(k8s.Note{
		Pod: o.Pod, Type: k8s.Warning, Reason: reasonAddFailed, At: time.Now(),
		Text: func() string { return failureText(o, a.failedOperation(o)) },
	})
}

// reasonUnknown is the reason of events on pods with unknown annotations.
const reasonUnknown = "WeftUnknownAnnotation"

// reasonUnlimited is the reason of events on pods that ask for limits of their bandwidth.
const reasonUnlimited = "WeftBandwidthNotLimited"

// reportUnknown writes an event for each annotation of a pod that has been added that has no effect: unknown ones contivpp.io/..., and
// limits of the bandwidth of a main interface that Weft made.
func (a *Agent) reportUnknown(o podmanager.Outcome) {
	if o.Happening != podmanager.Added || o.Pod.IsZero() {
		return
	}
	for _, fault := range pod.UnknownAnnotations(o.Attachment.Annotations) {
		a.events.Tell(k8s.Note{Pod: o.Pod, Type: k8s.Warning, Reason: reasonUnknown, At: time.Now(), Text: fault.Error})
	}
	if mode := o.Attachment.Mode; mode != "" && mode != pod.ModePrimary {
		return
	}
	for _, fault := range pod.UnservedLimits(o.Attachment.Annotations) {
		a.events.Tell(k8s.Note{Pod: o.Pod, Type: k8s.Warning, Reason: reasonUnlimited, At: time.Now(), Text: fault.Error})
	}
}

// reasonQuarantined is the reason of events on pods that are withheld from the dataplane.
const reasonQuarantined = "WeftQuarantined"

// reportQuarantine tells of a quarantined attachment by an event on its pod.
func (a *Agent) reportQuarantine(s suspicion) {
	if a.events == nil || s.Pod.IsZero() {
		return
	}
	text := fmt.Sprintf("interface %s of network %s is withheld from the dataplane: %s", s.Key.IfName, s.Key.Network, s.Reason)
	a.events.Tell(k8s.Note{Pod: s.Pod, Type: k8s.Warning, Reason: reasonQuarantined, At: time.Now(), Text: func() string { return text }})
}

// failedOperation is the operation by which the transaction of an ADD failed, as the log of transactions has it; nil: it
// failed otherwise.
func (a *Agent) failedOperation(o podmanager.Outcome) *kvscheduler.OpRecord {
	if o.Record == nil {
		return nil
	}
	for _, seq := range o.Record.Transactions {
		for r := range a.scheduler.Log(seq - 1) {
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

// failureText says what failed in the words of a pod's author: which interface, at which step, why, and what is left. It
// says the same of each sandbox of the pod, so that events of one failure are one.
func failureText(o podmanager.Outcome, op *kvscheduler.OpRecord) string {
	text := fmt.Sprintf("interface %s of network %s: %s", o.Key.IfName, o.Key.Network, stepAndReason(o, op))
	switch {
	case o.Record == nil:
	case len(o.Record.Stuck) > 0:
		text += fmt.Sprintf("; %d objects of it could not be undone yet", len(o.Record.Stuck))
	case o.Record.Undone:
		text += "; everything of it was undone"
	}
	return text
}

func stepAndReason(o podmanager.Outcome, op *kvscheduler.OpRecord) string {
	if op != nil {
		kind, _, _ := strings.Cut(op.Ref, "/")
		why := strings.TrimPrefix(op.Err, op.Verb+" "+op.Ref+": ")
		return fmt.Sprintf("%s %s failed: %s", inWords(op.Verb), cmp.Or(words[kind], kind), withoutIDs(why, o.Key))
	}
	return withoutIDs(o.Text, o.Key)
}

// withoutIDs leaves out of a text what is another thing with each try.
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

// words are what a pod's author calls the kinds of objects.
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
	wire.KindBridgeDomain:   "the network's bridge",
	wire.KindBridgeMember:   "the interface's place in the network's bridge",
	wire.KindL2FIB:          "the bridge's entry for the pod",
	wire.KindMACIP:          "the filter of the pod's sources",
	wire.KindACL:            "the filter of false routers",
	wire.KindInterfaceACL:   "the filter of false routers on the interface",
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
}
