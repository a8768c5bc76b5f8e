package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/weftnet/weft/agent/recovery"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/k8s/pods"
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
	a.events.Tell(events.Note{
		Pod: o.Pod, Type: events.Warning, Reason: reasonAddFailed, At: time.Now(),
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
		a.events.Tell(events.Note{Pod: o.Pod, Type: events.Warning, Reason: reasonUnknown, At: time.Now(), Text: fault.Error})
	}
	if mode := o.Attachment.Mode; mode != "" && mode != pod.ModePrimary {
		return
	}
	for _, fault := range pod.UnservedLimits(o.Attachment.Annotations) {
		a.events.Tell(events.Note{Pod: o.Pod, Type: events.Warning, Reason: reasonUnlimited, At: time.Now(), Text: fault.Error})
	}
}

// reasonQuarantined is the reason of events on pods that are withheld from the dataplane.
const reasonQuarantined = "WeftQuarantined"

// reportQuarantine tells of a quarantined attachment by an event on its pod.
func (a *Agent) reportQuarantine(s recovery.Suspicion) {
	if a.events == nil || s.Pod.IsZero() {
		return
	}
	text := fmt.Sprintf("interface %s of network %s is withheld from the dataplane: %s", s.Key.IfName, s.Key.Network, s.Reason)
	a.events.Tell(events.Note{Pod: s.Pod, Type: events.Warning, Reason: reasonQuarantined, At: time.Now(), Text: func() string { return text }})
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

// The pace of reports of what pods got.
const (
	reportEvery  = 10 * time.Second // looks at the switch, and at pods that were not shown yet
	reportAnew   = 10 * time.Minute // asks the API server for what there is
	reportPause  = time.Second      // between two reports: pods come in bursts
	reportBounds = 30 * time.Second // the longest pause after errors
)

// podReport knows when there is something new to report.
type podReport struct {
	news chan struct{} // holds a token when attachments changed
}

func newPodReport() *podReport { return &podReport{news: make(chan struct{}, 1)} }

func (r *podReport) observe(o podmanager.Outcome) {
	if o.Happening == podmanager.Failed {
		return
	}
	select {
	case r.news <- struct{}{}:
	default: // there is a token already
	}
}

// reportPods keeps the PodInterfaces of this node's pods as what they got, while the cluster's switch is on, and removes
// them when it is turned off. All pods are known again when it begins.
func (a *Agent) reportPods(ctx context.Context) error {
	reporter, pauses := a.cluster.NewReporter(), backoff.NewExponentialBackOff()
	pauses.MaxInterval = reportBounds
	next := time.NewTimer(0)
	defer next.Stop()
	on, cleared, looked := false, false, time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.podReport.news:
		case <-next.C:
		}
		next.Reset(reportEvery)
		view, was := a.cluster.View(), on
		if on = view.Switches.PodInterfaces; !view.Complete || !on && cleared {
			continue
		}
		if on != was || time.Since(looked) > reportAnew {
			reporter.Forget()
			looked = time.Now()
		}
		err := reporter.Report(ctx, a.reports(on))
		cleared = !on && err == nil
		if err != nil && ctx.Err() == nil {
			after := max(pauses.NextBackOff(), 0)
			a.log.Warn("what pods got is not written, trying again", "after", after, "err", err)
			next.Reset(after)
		} else {
			pauses.Reset()
		}
		pause(ctx, reportPause)
	}
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// reports are those of all pods that have an attachment; none where they are not wanted.
func (a *Agent) reports(wanted bool) []pods.Report {
	if !wanted {
		return nil
	}
	return reportsOf(a.pods.Attachments())
}

// reportsOf is what each pod got in its newest sandbox, by attachments in the order of their age.
func reportsOf(attachments []pod.Attachment) []pods.Report {
	var reports []pods.Report
	for _, at := range attachments {
		if at.Pod.IsZero() {
			continue
		}
		i := slices.IndexFunc(reports, func(r pods.Report) bool { return r.Pod.String() == at.Pod.String() })
		switch {
		case i < 0:
			reports = append(reports, pods.Report{Pod: at.Pod, Sandbox: at.Key.ContainerID})
			i = len(reports) - 1
		case reports[i].Sandbox != at.Key.ContainerID:
			reports[i] = pods.Report{Pod: at.Pod, Sandbox: at.Key.ContainerID}
		}
		for _, in := range at.Interfaces {
			if slices.ContainsFunc(reports[i].Interfaces, func(r v1.PodInterface) bool { return r.Name == in.Name }) {
				continue // one name is one interface for the API server
			}
			reports[i].Interfaces = append(reports[i].Interfaces, reportOf(in))
		}
	}
	return reports
}

func reportOf(in pod.Interface) v1.PodInterface {
	r := v1.PodInterface{
		Name: in.Name, Type: in.Type, Network: cmp.Or(in.Network, pod.DefaultNetwork), MAC: in.MAC, MTU: int32(in.MTU),
	}
	for _, address := range in.Addresses {
		r.Addresses = append(r.Addresses, address.String())
	}
	if in.Memif != nil {
		r.Container = in.Memif.Container
	}
	return r
}

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
	a.events.Tell(events.Note{Pod: id, Type: events.Warning, Reason: reasonEdited, At: time.Now(), Text: func() string {
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
