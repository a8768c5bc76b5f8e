// Package planning implements the gRPC service Planning: it compares objects with the machine, draws their graph and
// plans changes. It has no side effects.
package planning

import (
	"context"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
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

// Server implements Planning, with one type for each concern.
type Server struct {
	operatorv1.UnsafePlanningServer // it does not compile without all methods

	reader
	graph
	externals
	configs
	pods
}

// New returns a server for operatorv1.RegisterPlanningServer.
func New(c Config) *Server {
	down := dataplane{down: c.Down}
	known := &objects{
		dataplane: down, scheduler: c.Scheduler, attachments: c.Attachments, ofAttachment: c.Objects,
	}
	changes := planner{dataplane: down, plan: c.Plan, served: c.Served}
	return &Server{
		reader:    reader{objects: known, reading: make(chan struct{}, 1)},
		graph:     graph{objects: known},
		externals: externals{planner: changes, loop: c.Loop},
		configs:   configs{planner: changes, loop: c.Loop, settings: c.Settings, newValues: c.NewValues},
		pods:      pods{planner: changes, add: c.PlanPod, edit: c.PlanEdit, networks: c.Networks},
	}
}
