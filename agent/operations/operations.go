// Package operations implements the gRPC service Operations for weftctl, and the calls of weft-agent's commands to a
// running agent.
package operations

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/drift"
	"github.com/weftnet/weft/agent/external"
	"github.com/weftnet/weft/agent/garbage"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/dataplane/splice"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// Config has the components that a Server reads and controls.
type Config struct {
	Process   Process
	Loop      *eventloop.Loop
	Scheduler *kvscheduler.Scheduler
	External  *external.Files
	Owners    *owners.Index
	Pods      *podmanager.Manager
	Network   *ipnet.Network
	Devices   *devicemanager.Manager // nil: no device plugin
	Policies  Explainer              // nil: policies are not enforced
	Dataplane Dataplane
	Repair    Repair
}

// Process has the state and the settings of the agent's process.
type Process struct {
	Health   *health.Conditions
	LogLevel *LogLevel
	Settings func() config.Config                // the effective configuration
	Paused   func() (reason string, paused bool) // whether ADDs are paused
	Stopping <-chan struct{}                     // closed when the agent stops
}

// Dataplane has the agent's connections to the dataplane.
type Dataplane struct {
	Client   *vpp.Client
	Counters *southbound.Counters
	Splices  *splice.Splices
}

// Repair has the components that compare the machine with the state, and that repair it.
type Repair struct {
	Drift      *drift.Monitor
	Unread     *drift.Unread
	Garbage    *garbage.Collector
	Quarantine *recovery.Quarantine
	Replayer   *recovery.Replayer
}

// Server implements Operations, with one type for each concern. Only Resync, Audit, Configure, Release, CollectGarbage
// and Counters wait for the dataplane; the other methods return snapshots.
type Server struct {
	operatorv1.UnsafeOperationsServer // it does not compile without all methods

	process
	attachments
	resources
	objects
	policies
	counters
	journal
	configurer
	repairs
	collection
	quarantine
}

// New returns a server for operatorv1.RegisterOperationsServer.
func New(c Config) *Server {
	s := &Server{
		objects:    objects{scheduler: c.Scheduler, dataplane: c.Dataplane.Client, owners: c.Owners},
		resources:  resources{pods: c.Pods, network: c.Network, devices: c.Devices},
		counters:   counters{pods: c.Pods, dataplane: c.Dataplane.Client, links: c.Dataplane.Counters},
		configurer: configurer{loop: c.Loop, scheduler: c.Scheduler, owners: c.Owners},
		collection: collection{pods: c.Pods, collector: c.Repair.Garbage},
		quarantine: quarantine{quarantined: c.Repair.Quarantine, replayer: c.Repair.Replayer},
	}
	s.process = process{
		config: c.Process, started: time.Now(), loop: c.Loop, pods: c.Pods, devices: c.Devices, external: c.External,
		dataplane: c.Dataplane.Client, objects: &s.objects, owners: c.Owners,
	}
	s.attachments = attachments{
		pods: c.Pods, network: c.Network, unread: c.Repair.Unread, splices: c.Dataplane.Splices,
	}
	s.policies = policies{
		explainer: c.Policies, pods: c.Pods, network: c.Network, scheduler: c.Scheduler, dataplane: c.Dataplane.Client,
	}
	s.journal = journal{loop: c.Loop, scheduler: c.Scheduler, owners: c.Owners, stopping: c.Process.Stopping}
	s.repairs = repairs{
		health: c.Process.Health, loop: c.Loop, scheduler: c.Scheduler, drift: c.Repair.Drift, owners: c.Owners,
	}
	return s
}

// textOf returns the text of an error, "" for nil.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func took(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// document returns a record as JSON, for -o json.
func document(record any) []byte {
	raw, err := json.Marshal(record)
	if err != nil {
		raw, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	return raw
}
