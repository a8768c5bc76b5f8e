package podmanager

import (
	"context"
	"fmt"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Planned is the attachment that the ADD of a pod would create.
type Planned struct {
	Attachment *pod.Attachment  // nil after an error
	Change     eventloop.Change // what would be committed; empty after an error
	Notes      []string         // for people
}

// plannedContainer stands for the ID of a container that a runtime has not chosen yet. Names of objects are made from
// it.
const plannedContainer = "planned"

// plannedNetns stands for the network namespace of a sandbox that does not exist yet.
var plannedNetns = pod.Netns{Path: "/run/netns/" + plannedContainer, Inode: 1}

// Plan makes the decisions of an ADD of a pod, without side effects. In contrast to an ADD there is no sandbox, and
// kubelet has chosen no devices: grants, also for claims, stand for them. Devicemanager, which opens the devices of
// kubelet, is left out.
func (m *Manager) Plan(
	ctx context.Context, id pod.ID, annotations map[string]string, grants []pod.Grant,
) (*Planned, error) {
	ev := &pod.AddPod{Request: pod.Request{
		Key:  pod.Key{Network: plannedContainer, ContainerID: plannedContainer, IfName: "eth0"},
		ID:   id,
		Mode: pod.ModePrimary, Netns: plannedNetns, Annotations: annotations, AnnotationsFrom: "manifest",
	}}
	isClaimed := func(g pod.Grant) bool { return g.Allocation.Claim != nil }
	if err := addClaimed(&ev.Request,
		slices.DeleteFunc(slices.Clone(grants), func(g pod.Grant) bool { return !isClaimed(g) })); err != nil {
		return nil, err
	}
	ev.Grants = append(ev.Grants, slices.DeleteFunc(slices.Clone(grants), isClaimed)...)
	if ats := m.Attachments(); len(ats) > 0 {
		ev.Key.Network = ats[0].Key.Network // the name of the CNI configuration
	}
	var err error
	if ev.Selected, err = m.inputs.selected(ctx, &ev.Request); err != nil {
		return nil, err
	}
	var notes []string
	requests, _ := ev.Extra()
	if err := m.claims.read(&ev.Request, requests, m.claims.planned(ctx, id, &notes)); err != nil {
		return nil, err
	}
	planned, err := m.config.Loop.Plan(ctx, ev, "devicemanager")
	if err != nil {
		return nil, err
	}
	return &Planned{Attachment: ev.Attachment, Change: planned.Change, Notes: notes}, nil
}

// ErrorOf returns the error of an ADD for the runtime: one line, and a code. isCommit means that the commit failed.
func ErrorOf(err error, isCommit bool) *weftv1.Error {
	var rec *eventloop.Record
	if isCommit {
		err = fmt.Errorf("commit: %w", err)
		rec = &eventloop.Record{}
		rec.Steps = []eventloop.Step{{Name: "commit", Err: err.Error()}}
	}
	reply := replyError(err, rec)
	reply.Details = ""
	return reply
}
