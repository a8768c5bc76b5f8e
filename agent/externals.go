package agent

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/k8s"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// followExternals sets the node's interfaces to the outside; again, when it is time, as long as some are not connected.
func (a *Agent) followExternals(ctx context.Context, now *followed) {
	next := &pod.SetExternals{From: "cluster"}
	for _, e := range now.view.Externals {
		next.Externals = append(next.Externals, e.External)
	}
	was, missing := now.externals, len(next.Externals)-len(a.network.Externals())
	known := was != nil && reflect.DeepEqual(was.Externals, next.Externals)
	switch {
	case missing == 0 && (known || len(next.Externals) == 0):
		now.externals = next
	case known && missing == len(was.Refused) && !now.tryAgain: // it would be no other way
	case a.set(ctx, next):
		a.refused("external interface", next.Refused, now.told.externals)
		now.externals, now.told.externals = next, next.Refused
	}
	a.repairLinks(ctx)
}

// repairLinks has the scheduler look at the links of the outside where one of them went away or came back: nobody tells of
// links that others make.
func (a *Agent) repairLinks(ctx context.Context) {
	for _, e := range a.network.Externals() {
		ref := kvscheduler.Ref{Kind: wire.KindLink, Name: e.Interface}
		status, _ := a.scheduler.View().Status(ref)
		failed, fault := status.Phase == kvscheduler.Failed, linux.LinkFault(e.Interface)
		switch {
		case fault == nil && status.Phase == kvscheduler.InSync, fault != nil && failed:
			continue // the scheduler knows
		case failed && status.RetryAt.IsZero():
			continue // it is there, and of no use
		}
		a.log.Info("link to the outside is not as it was", "interface", e.Interface, "err", fault)
		if _, err := a.scheduler.Resync(ctx, kvscheduler.ResyncOpt{Kinds: []kvscheduler.Kind{wire.KindLink, wire.KindVLAN}}); err != nil {
			a.log.Warn("link to the outside not repaired yet", "interface", e.Interface, "err", err)
		}
		return
	}
}

// observedExternals says of each interface to the outside that this node is to have how it stands.
func (a *Agent) observedExternals(now *followed) (observed []v1.ObservedExternal) {
	if now.externals == nil {
		return nil
	}
	view := a.scheduler.View()
	for _, e := range now.view.Externals {
		isSet := func(o pod.External) bool { return reflect.DeepEqual(o, e.External) }
		if !slices.ContainsFunc(now.externals.Externals, isSet) {
			continue // nobody knows yet
		}
		reason := now.externals.Refused[e.Name]
		if reason == "" {
			reason = a.unsettled(view, e)
		}
		observed = append(observed, v1.ObservedExternal{Name: e.Name, Generation: e.Generation, Reason: shortened(reason)})
	}
	return observed
}

// unsettled says why an interface that was accepted is not connected; "": it is.
func (a *Agent) unsettled(view kvscheduler.View, e k8s.External) string {
	keys := a.network.ExternalObjects(e.Name)
	if len(keys) == 0 {
		return fmt.Sprintf("network %q is not on this node", e.Network)
	}
	for _, key := range keys { // the first is what the others stand on
		ref, err := kvscheduler.ParseRef(key)
		if err != nil {
			return err.Error()
		}
		switch status, _ := view.Status(ref); {
		case status.Phase == kvscheduler.InSync:
			continue
		case status.Err != nil:
			return status.Err.Error()
		default:
			return fmt.Sprintf("%s is %s: %s", key, status.Phase, strings.Join(status.Missing, ", "))
		}
	}
	return ""
}

// maxReason is how many bytes of a reason the API server takes.
const maxReason = 1024

// shortened is a reason in one line that is not too long.
func shortened(reason string) string {
	reason = strings.Join(strings.Fields(reason), " ")
	return strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}
