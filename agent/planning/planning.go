// Package planning implements the gRPC service Planning: it compares objects with the machine, draws their graph and
// plans changes. It has no side effects.
package planning

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	"github.com/weftnet/weft/wire"
)

// Config has the components that a Server reads.
type Config struct {
	Scheduler   *kvscheduler.Scheduler
	Attachments func() []pod.Attachment
	Objects     func(*pod.Attachment) []string // keys of the values that connect an attachment
	Down        func() error                   // why the dataplane is not connected; nil while it is

	Loop *eventloop.Loop
	Plan func(context.Context, eventloop.Change) (Transactions, error) // plans a change on the scheduler

	// with annotations and devices
	PlanPod func(context.Context, pod.ID, map[string]string, []pod.Grant) (*podmanager.Planned, error)
	// PlanEdit plans the change of a pod of this node after an edit of its annotations.
	PlanEdit func(context.Context, pod.ID, map[string]string) (*podmanager.Planned, error)
	// names of the custom networks
	Networks func() []string

	Settings func() config.Config // the effective configuration
	// values that another configuration changes, with notes
	NewValues func(context.Context, config.Config) ([]eventloop.Setting, []string, error)

	// Served returns why ADDs are refused; nil if they are served. isStarting means that the agent has not started.
	Served func() (isStarting bool, refusal error)
}

// Server implements Planning.
type Server struct {
	operatorv1.UnimplementedPlanningServer

	config  Config
	reading chan struct{} // of capacity 1: the machine is read for one caller at a time
}

// New returns a server for operatorv1.RegisterPlanningServer.
func New(c Config) *Server { return &Server{config: c, reading: make(chan struct{}, 1)} }

// selected returns the objects that a selector names, sorted by key: a key, a prefix of keys, or NAMESPACE/NAME of a
// pod. An unknown name is an error with the code
// NotFound.
func (s *Server) selected(selector string) ([]kvscheduler.Ref, error) {
	view := s.config.Scheduler.View()
	kind, name, isKey := strings.Cut(selector, "/")
	if isKey && !slices.Contains(wire.Kinds(), kind) {
		return s.objectsOfPod(kind, name)
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

func (s *Server) objectsOfPod(namespace, name string) ([]kvscheduler.Ref, error) {
	var refs []kvscheduler.Ref
	for _, a := range s.config.Attachments() {
		if a.Pod.Namespace != namespace || a.Pod.Name != name {
			continue
		}
		for _, key := range s.config.Objects(&a) {
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

// phaseUnknown replaces InSync for objects of a dataplane that is not connected: it may have lost them.
const phaseUnknown = "Unknown"

// phaseOf returns the phase of an object for operators; "" if the object is neither desired nor known.
func (s *Server) phaseOf(view kvscheduler.View, ref kvscheduler.Ref) string {
	st, known := view.Status(ref)
	switch {
	case !known:
		return ""
	case st.Phase == kvscheduler.InSync && wire.IsDataplane(string(ref.Kind)) && s.config.Down() != nil:
		return phaseUnknown
	}
	return st.Phase.String()
}

// lastKnown says that the dataplane is not connected, and which values a reply shows instead; "" while it is connected.
func (s *Server) lastKnown(what string) string {
	down := s.config.Down()
	if down == nil {
		return ""
	}
	return fmt.Sprintf("the dataplane is not connected (%v): %s", down, what)
}
