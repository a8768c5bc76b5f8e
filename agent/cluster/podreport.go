package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/retry"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// The times of reports.
const (
	reportEvery  = 10 * time.Second       // poll of the switch in the cluster
	reportAnew   = 10 * time.Minute       // compare with the API server
	reportPause  = time.Second            // between two reports, because pods come in bursts
	reportFirst  = 500 * time.Millisecond // the shortest pause after errors
	reportBounds = 30 * time.Second       // the longest pause after errors
)

// PodReport keeps the PodInterfaces of this node in the API server.
type PodReport struct {
	cluster *nodeview.Cluster
	pods    *podmanager.Manager
	log     *slog.Logger
	news    chan struct{} // holds a token when attachments changed
}

// NewPodReport returns a report. It does not write before Run.
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

// Run writes the interfaces of this node's pods as PodInterfaces while the switch of the cluster is on, and deletes
// them when it is turned off, until ctx ends. All attachments are restored.
func (r *PodReport) Run(ctx context.Context) error {
	reporter := r.cluster.NewReporter()
	pauses := retry.Pauses(reportFirst, reportBounds)
	next := time.NewTimer(0)
	defer next.Stop()
	on := false
	cleared := false
	looked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.news:
		case <-next.C:
		}
		next.Reset(reportEvery)
		view := r.cluster.View()
		was := on
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
			after := pauses.NextBackOff()
			r.log.Warn("objects of kind PodInterfaces not written, retrying", "after", after, "err", err)
			next.Reset(after)
		} else {
			pauses.Reset()
		}
		_ = retry.Pause(ctx, reportPause)
	}
}

// reports returns the reports of all pods with an attachment; none if they are not wanted.
func (r *PodReport) reports(wanted bool) []pods.Report {
	if !wanted {
		return nil
	}
	return reportsOf(r.pods.Attachments())
}

// reportsOf returns the interfaces of each pod in its newest sandbox. The attachments are in the order of their age.
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
				continue // names are unique in a PodInterfaces
			}
			reports[i].Interfaces = append(reports[i].Interfaces, reportOf(in))
		}
	}
	return reports
}

func reportOf(in pod.Interface) v1.PodInterface {
	r := v1.PodInterface{
		Name:    in.Name,
		Type:    in.Type,
		Network: cmp.Or(in.Network, pod.DefaultNetwork),
		MAC:     in.MAC.String(),
		MTU:     int32(in.MTU),
	}
	for _, address := range in.Addresses {
		r.Addresses = append(r.Addresses, address.String())
	}
	if in.Memif != nil {
		r.Container = in.Memif.Container
	}
	return r
}
