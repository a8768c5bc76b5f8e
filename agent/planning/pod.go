package planning

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"

	"github.com/weftnet/weft/agent/shown"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// pods plans the ADDs and the edits of pods.
type pods struct {
	planner

	add      func(context.Context, pod.ID, map[string]string, []pod.Grant) (*podmanager.Planned, error)
	edit     func(context.Context, pod.ID, map[string]string) (*podmanager.Planned, error)
	networks func() []string // names of the custom networks
}

// PlanPod plans the ADD of a pod with this manifest on this node, or the edit of a running pod to this manifest.
func (p *pods) PlanPod(ctx context.Context, req *operatorv1.PlanPodRequest) (*operatorv1.PlanReply, error) {
	m, err := parseManifest(req.Manifest)
	if err != nil {
		return &operatorv1.PlanReply{Error: err.Error()}, nil //nolint:nilerr // an error of the request, not of the call
	}
	if req.Edit {
		return p.planEdit(ctx, m)
	}
	grants, err := m.grants()
	if err != nil {
		return &operatorv1.PlanReply{Error: err.Error()}, nil //nolint:nilerr // as above
	}
	claimed, notes, err := m.claimed()
	if err != nil {
		return &operatorv1.PlanReply{Error: err.Error()}, nil //nolint:nilerr // as above
	}
	if len(claimed) > 0 {
		notes = append(notes,
			"the scheduler chooses the devices of claims: those of the plan are placeholders, of alternatives the first, and one for all devices of a node")
	}
	reply := &operatorv1.PlanReply{Notes: notes}
	isStarting, refusal := p.served()
	if refusal != nil {
		refuse(reply, refusal, false)
	}
	if isStarting {
		return reply, nil
	}
	planned, err := p.add(ctx, m.id(), m.Metadata.Annotations, append(claimed, grants...))
	p.noteDown(reply)
	if err != nil {
		refuse(reply, err, false)
		p.suggest(reply, m.Metadata.Annotations)
		return reply, nil
	}
	reply.Notes = append(reply.Notes, planned.Notes...)
	transactions, err := p.plan(ctx, planned.Change)
	if err != nil {
		refuse(reply, err, true)
	}
	transactions.addTo(reply)
	describe(reply, planned.Attachment)
	return reply, nil
}

// planEdit plans an edit. The pod has its devices already.
func (p *pods) planEdit(ctx context.Context, m *manifest) (*operatorv1.PlanReply, error) {
	reply := new(operatorv1.PlanReply)
	planned, err := p.edit(ctx, m.id(), m.Metadata.Annotations)
	p.noteDown(reply)
	if err != nil {
		refuse(reply, err, false)
		p.suggest(reply, m.Metadata.Annotations)
		return reply, nil
	}
	transactions, err := p.plan(ctx, planned.Change)
	if err != nil {
		refuse(reply, err, true)
	}
	transactions.addTo(reply)
	reply.Interfaces = append(reply.Interfaces, shown.Interfaces(planned.Attachment)...)
	reply.Notes = append(reply.Notes, planned.Notes...)
	reply.Notes = append(reply.Notes, "addresses go to the pod that comes first")
	return reply, nil
}

// refuse sets the error with which the ADD would fail. The first one counts: an ADD does not come to the second.
func refuse(reply *operatorv1.PlanReply, err error, isCommit bool) {
	if reply.Error != "" {
		reply.Notes = append(reply.Notes, "after that the ADD would fail: "+podmanager.ErrorOf(err, isCommit).Msg)
		return
	}
	failure := podmanager.ErrorOf(err, isCommit)
	reply.Error = failure.Msg
	reply.Code = failure.Code
}

// describe adds the interfaces and devices of a planned attachment.
func describe(reply *operatorv1.PlanReply, a *pod.Attachment) {
	reply.Interfaces = append(reply.Interfaces, shown.Interfaces(a)...)
	devices := make(map[string]int)
	var containers []string
	for _, i := range a.Interfaces {
		if i.Memif == nil || i.Memif.Container == "" { // of a claim
			continue
		}
		if devices[i.Memif.Container]++; devices[i.Memif.Container] == 1 {
			containers = append(containers, i.Memif.Container)
		}
	}
	for _, c := range containers {
		reply.Devices = append(reply.Devices, fmt.Sprintf("container %s needs %d of %s", c, devices[c], pod.Resource))
	}
	if len(containers) > 0 {
		reply.Notes = append(reply.Notes,
			"kubelet chooses the devices when it admits the pod: names and numbers of sockets are placeholders, and the files of the devices are not in the plan")
	}
	reply.Notes = append(reply.Notes,
		"names of objects, and MACs that the pod does not request, depend on the sandbox: those of the plan are placeholders; addresses go to the pod that comes first")
}

// suggest names the nearest network for each unknown one that the annotations request.
func (p *pods) suggest(reply *operatorv1.PlanReply, annotations map[string]string) {
	if reply.Code != uint32(pod.CodeUnknownNetwork) {
		return
	}
	requests, err := pod.InterfaceRequests(annotations, "eth0")
	if err != nil {
		return
	}
	known := append(p.networks(), pod.DefaultNetwork, pod.StubNetwork)
	for _, r := range requests {
		if near := nearest(r.Network, known); near != "" {
			reply.Notes = append(reply.Notes, fmt.Sprintf("unknown network %q; did you mean %q?", r.Network, near))
		}
	}
}

// nearest returns the known name with the smallest distance to an unknown one; "" if name is known or empty, or none is
// near.
func nearest(name string, known []string) string {
	if name == "" || slices.Contains(known, name) {
		return ""
	}
	best := ""
	limit := max(len(name)/2, 2)
	for _, k := range slices.Sorted(slices.Values(known)) {
		distance := levenshtein.Distance(strings.ToLower(name), strings.ToLower(k), nil)
		if strings.HasPrefix(k, name) {
			distance = min(distance, 1)
		}
		if distance < limit || distance == limit && best == "" {
			best = k
			limit = distance
		}
	}
	return best
}
