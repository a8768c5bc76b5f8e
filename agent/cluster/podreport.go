package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// The pace of reports of what pods got.
const (
	reportEvery  = 10 * time.Second // looks at the switch, and at pods that were not shown yet
	reportAnew   = 10 * time.Minute // asks the API server for what there is
	reportPause  = time.Second      // between two reports: pods come in bursts
	reportBounds = 30 * time.Second // the longest pause after errors
)

// PodReport knows when there is something new to report.
type PodReport struct {
	cluster *nodeview.Cluster
	pods    *podmanager.Manager
	log     *slog.Logger
	news    chan struct{} // holds a token when attachments changed
}

// NewPodReport reports nothing before Run.
func NewPodReport(cluster *nodeview.Cluster, pods *podmanager.Manager, log *slog.Logger) *PodReport {
	return &PodReport{cluster: cluster, pods: pods, log: log, news: make(chan struct{}, 1)}
}

// Observe takes what happened to an attachment.
func (r *PodReport) Observe(o podmanager.Outcome) {
	if o.Happening == podmanager.Failed {
		return
	}
	select {
	case r.news <- struct{}{}:
	default: // there is a token already
	}
}

// Run keeps the PodInterfaces of this node's pods as what they got, while the cluster's switch is on, and removes
// them when it is turned off. All pods are known again when it begins.
func (r *PodReport) Run(ctx context.Context) error {
	reporter, pauses := r.cluster.NewReporter(), backoff.NewExponentialBackOff()
	pauses.MaxInterval = reportBounds
	next := time.NewTimer(0)
	defer next.Stop()
	on, cleared, looked := false, false, time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.news:
		case <-next.C:
		}
		next.Reset(reportEvery)
		view, was := r.cluster.View(), on
		if on = view.Switches.PodInterfaces; !view.Complete || !on && cleared {
			continue
		}
		if on != was || time.Since(looked) > reportAnew {
			reporter.Forget()
			looked = time.Now()
		}
		err := reporter.Report(ctx, r.reports(on))
		cleared = !on && err == nil
		if err != nil && ctx.Err() == nil {
			after := max(pauses.NextBackOff(), 0)
			r.log.Warn("what pods got is not written, trying again", "after", after, "err", err)
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
func (r *PodReport) reports(wanted bool) []pods.Report {
	if !wanted {
		return nil
	}
	return reportsOf(r.pods.Attachments())
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
