package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/proto/document"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// story has the agent's records of one pod.
type story struct {
	pod          string
	attachments  []*operatorv1.AttachmentInfo
	events       []*operatorv1.EventRecord
	transactions map[uint64]*operatorv1.TransactionRecord // of the events that are still recorded
	devices      []*operatorv1.Allocation
	quarantine   []*operatorv1.QuarantineEntry
	counters     []*operatorv1.InterfaceCounters
	errors       []*operatorv1.ErrorCounter // of the pod's interfaces
	objects      int                        // of the attachments
	unsettled    []*operatorv1.Object       // those that are not in sync
	missing      []string                   // parts that could not be read, with the reason
}

// States of a pod, for operators.
const (
	podRunning     = "running"
	podDegraded    = "degraded" // attached, but an object is not in sync, or may not be
	podQuarantined = "quarantined"
	podFailed      = "failed"  // its last ADD failed
	podDeleted     = "deleted" // its last ADD succeeded
	podAllocated   = "waiting" // kubelet allocated devices, the runtime sent no ADD
)

// state returns the state of the pod and its cause, in words; the cause is empty for a running or deleted pod.
func (s *story) state() (state, cause string) {
	for _, q := range s.quarantine {
		if q.State == podQuarantined {
			return podQuarantined, q.Reason + "; weftctl quarantine release " + s.pod + " serves it again"
		}
	}
	add := s.lastAdd()
	switch {
	case len(s.attachments) > 0 && len(s.unsettled) > 0:
		return podDegraded, reasonOf(s.unsettled[0])
	case s.notChecked() != "":
		return podDegraded, "objects in the pod are neither checked nor repaired: " + s.notChecked()
	case len(s.attachments) > 0:
		return podRunning, ""
	case add != nil && add.Error != "":
		return podFailed, add.Error
	case len(s.events) == 0 && len(s.devices) > 0:
		return podAllocated, "kubelet allocated devices, but no ADD has arrived from the container runtime"
	}
	return podDeleted, ""
}

// notChecked returns why the agent does not check the objects of an attachment; "": it does.
func (s *story) notChecked() string {
	for _, a := range s.attachments {
		if a.NotChecked != "" {
			return a.NotChecked
		}
	}
	return ""
}

// lastAdd returns the last ADD, or nil if none is recorded.
func (s *story) lastAdd() *operatorv1.EventRecord {
	for _, e := range slices.Backward(s.events) {
		if strings.HasPrefix(e.Event, "add ") {
			return e
		}
	}
	return nil
}

// reasonOf explains in words why an object is not in sync.
func reasonOf(o *operatorv1.Object) string {
	name := owned(o.Ref, o.Owners)
	switch {
	case o.Error != "":
		return name + " is " + o.Phase + ": " + o.Error
	case len(o.Missing) > 0:
		return name + " is " + o.Phase + ": waits for " + strings.Join(o.Missing, ", ")
	}
	return name + " is " + o.Phase
}

func (s *story) readAttachments(ctx context.Context, api operatorv1.OperationsClient, names map[string]bool) error {
	reply, err := api.Attachments(ctx, &operatorv1.AttachmentsRequest{})
	if err != nil {
		return err
	}
	for _, a := range reply.Attachments {
		if s.isPod(a.Pod, names) {
			s.attachments = append(s.attachments, a)
		}
	}
	return nil
}

// podOfEvent finds the pod in the text of an event: "add pod NAMESPACE/NAME eth0 (weft, sandbox ID)".
var podOfEvent = regexp.MustCompile(`^\S+ pod ([^\s/]+/[^\s/]+) `)

func (s *story) readEvents(ctx context.Context, api operatorv1.OperationsClient, names map[string]bool) error {
	stream, err := api.Events(ctx, &operatorv1.EventsRequest{})
	if err != nil {
		return err
	}
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		isMine := false
		if match := podOfEvent.FindStringSubmatch(e.Event); match != nil {
			names[match[1]] = true
			isMine = match[1] == s.pod
		}
		if isMine || isOwnedBy(e.Owners, s.pod) {
			s.events = append(s.events, e)
		}
	}
}

func (s *story) readDevices(ctx context.Context, api operatorv1.OperationsClient, names map[string]bool) {
	reply, err := api.Devices(ctx, &operatorv1.DevicesRequest{})
	s.lacks("devices", err)
	for _, d := range reply.GetAllocations() {
		if s.isPod(d.Pod, names) {
			s.devices = append(s.devices, d)
		}
	}
}

func (s *story) readQuarantine(ctx context.Context, api operatorv1.OperationsClient, names map[string]bool) {
	reply, err := api.Quarantine(ctx, &operatorv1.QuarantineRequest{})
	s.lacks("quarantine", err)
	for _, q := range reply.GetEntries() {
		if s.isPod(q.Pod, names) {
			s.quarantine = append(s.quarantine, q)
		}
	}
}

// isPod reports whether p is the pod of the story, and adds its name to names.
func (s *story) isPod(p *weftv1.Pod, names map[string]bool) bool {
	if p.GetName() == "" {
		return false
	}
	names[podName(p)] = true
	return podName(p) == s.pod
}

func (s *story) readTransactions(ctx context.Context, api operatorv1.OperationsClient) {
	reply, err := api.Transactions(ctx, &operatorv1.TransactionsRequest{})
	s.lacks("transactions", err)
	s.transactions = map[uint64]*operatorv1.TransactionRecord{}
	for _, t := range reply.GetTransactions() {
		if slices.ContainsFunc(s.events, func(e *operatorv1.EventRecord) bool {
			return slices.Contains(e.Transactions, t.Seq)
		}) {
			s.transactions[t.Seq] = t
		}
	}
}

// readObjects counts the objects of the attachments.
func (s *story) readObjects(ctx context.Context, api operatorv1.OperationsClient) {
	if len(s.attachments) == 0 {
		return
	}
	reply, err := api.Objects(ctx, &operatorv1.ObjectsRequest{Pod: s.pod})
	s.lacks("objects", err)
	for _, o := range reply.GetObjects() {
		if !isOwnedBy(o.Owners, s.pod) { // an agent of the last version does not select
			continue
		}
		s.objects++
		if o.Phase != "InSync" && o.Phase != "Observed" {
			s.unsettled = append(s.unsettled, o)
		}
	}
}

func (s *story) readCounters(ctx context.Context, api operatorv1.OperationsClient) {
	if len(s.attachments) == 0 {
		return
	}
	reply, err := api.Counters(ctx, &operatorv1.CountersRequest{})
	s.lacks("counters", err)
	for _, i := range reply.GetInterfaces() {
		if podName(i.Pod) == s.pod {
			s.counters = append(s.counters, i)
		}
	}
	for _, e := range reply.GetErrors() {
		if slices.ContainsFunc(s.counters, func(i *operatorv1.InterfaceCounters) bool {
			return i.Object != "" && e.Node == i.Object
		}) {
			s.errors = append(s.errors, e)
		}
	}
}

// storyDocument is a story for -o json.
type storyDocument struct {
	Attachments  messages[*operatorv1.AttachmentInfo]    `json:"attachments"`
	Cause        string                                  `json:"cause"`
	Counters     messages[*operatorv1.InterfaceCounters] `json:"counters"`
	Devices      messages[*operatorv1.Allocation]        `json:"devices"`
	Errors       messages[*operatorv1.ErrorCounter]      `json:"errors"`
	Events       messages[*operatorv1.EventRecord]       `json:"events"`
	NotInSync    messages[*operatorv1.Object]            `json:"notInSync"`
	NotRead      []string                                `json:"notRead"`
	Objects      int                                     `json:"objects"`
	Pod          string                                  `json:"pod"`
	Quarantine   messages[*operatorv1.QuarantineEntry]   `json:"quarantine"`
	State        string                                  `json:"state"`
	Transactions messages[*operatorv1.TransactionRecord] `json:"transactions"`
}

// document returns the story for -o json.
func (s *story) document() storyDocument {
	state, cause := s.state()
	transactions := []*operatorv1.TransactionRecord{}
	for _, e := range s.events {
		for _, seq := range e.Transactions {
			if t := s.transactions[seq]; t != nil {
				transactions = append(transactions, t)
			}
		}
	}
	return storyDocument{
		Attachments:  s.attachments,
		Cause:        cause,
		Counters:     s.counters,
		Devices:      s.devices,
		Errors:       s.errors,
		Events:       s.events,
		NotInSync:    s.unsettled,
		NotRead:      append([]string{}, s.missing...),
		Objects:      s.objects,
		Pod:          s.pod,
		Quarantine:   s.quarantine,
		State:        state,
		Transactions: transactions,
	}
}

// messages are a list in a document.
type messages[M proto.Message] []M

// MarshalJSON returns the documents of the messages.
func (list messages[M]) MarshalJSON() ([]byte, error) {
	docs := []any{}
	for _, m := range list {
		docs = append(docs, document.Of(m.ProtoReflect()))
	}
	return json.Marshal(docs)
}

// messageOf returns the message of a gRPC error, without its code.
func messageOf(err error) string { return status.Convert(err).Message() }

// since returns the time of the state: of the oldest attachment, or of the last event.
func (s *story) since() *timestamppb.Timestamp {
	if len(s.attachments) > 0 {
		return s.attachments[0].Created
	}
	if len(s.events) > 0 {
		return s.events[len(s.events)-1].Arrived
	}
	return nil
}
