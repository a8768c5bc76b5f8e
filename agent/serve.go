package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/inventory"
	"github.com/weftnet/weft/agent/operations"
	"github.com/weftnet/weft/agent/packets"
	"github.com/weftnet/weft/agent/planning"
	"github.com/weftnet/weft/agent/ui"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/ipnet/desired"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// serve serves the CNI plugin, operators and health probes on one socket that only root can open. It serves as soon as
// the state is restored: until the first resync has ended, ADD fails with "try again later" and operators see the
// reason.
func (a *Agent) serve(ctx context.Context, operator *operations.Server) error {
	compared := comparison{
		networkSettings: a.networkSettings(),
		config:          &a.config,
		storage:         a.storage,
		network:         a.network,
		quarantine:      a.quarantine,
	}
	server := a.socket.newServer(a.pods)
	operatorv1.RegisterOperationsServer(server, operator)
	operatorv1.RegisterDataplaneServer(server, &inventory.Server{
		Client:   a.backend.dataplane.Client,
		Pods:     a.pods,
		Counters: a.telemetry.counters,
	})
	operatorv1.RegisterPlanningServer(server, planning.New(planning.Config{
		Scheduler:   a.backend.scheduler,
		Attachments: a.pods.Attachments,
		Objects:     a.machine.objects,
		Down:        a.backend.dataplane.Client.Health,
		Loop:        a.loop,
		Plan:        a.backend.committer.Plan,
		Served:      a.pods.WouldServe,
		PlanPod:     a.pods.Plan,
		PlanEdit:    a.pods.Edits().Plan,
		Settings:    a.cluster.settings,
		NewValues:   compared.newValues,
		Networks:    func() []string { return slices.Sorted(maps.Keys(a.network.Networks.Customs())) },
	}))
	operatorv1.RegisterPacketsServer(server, packets.New(packets.Config{
		Attachments: a.pods.Attachments,
		Dataplane:   a.backend.dataplane.Client,
		Log:         a.log.With("component", "packets"),
		Stopping:    ctx.Done(),
	}))
	defer context.AfterFunc(ctx, a.pods.EndWaits)() // else they last as long as the stop of the server may
	return a.socket.listenAndServe(ctx, server)
}

// operator returns the service for operators until ctx ends.
func (a *Agent) operator(ctx context.Context) *operations.Server {
	c := operations.Config{
		Process: operations.Process{
			Health:   a.health,
			LogLevel: a.telemetry.logLevel,
			Settings: a.cluster.settings,
			Paused:   a.admission.Paused,
			Stopping: ctx.Done(),
		},
		Loop:      a.loop,
		Scheduler: a.backend.scheduler,
		External:  a.external,
		Owners:    a.observers.owners,
		Pods:      a.pods,
		Network:   a.network,
		Devices:   a.devices.manager,
		Dataplane: operations.Dataplane{
			Client:   a.backend.dataplane.Client,
			Counters: a.telemetry.counters,
			Splices:  a.backend.splices,
		},
		Repair: operations.Repair{
			Drift:      a.drift,
			Unread:     a.deletions.unread,
			Garbage:    a.deletions.vanished,
			Quarantine: a.quarantine,
			Replayer:   a.replayer,
		},
	}
	if a.cluster.enforces() {
		c.Policies = a.cluster.member.Enforced
	}
	return operations.New(c)
}

// page returns the server of the operator's page.
func (a *Agent) page(ctx context.Context, operator *operations.Server) *ui.Server {
	c := a.config.UI
	s := &ui.Server{
		Socket: c.Socket, Listen: c.Listen, TokenFile: c.TokenFile, Log: a.log.With("component", "ui"),
		Handler: ui.Handler(&ui.API{Operations: operator, Stopping: ctx.Done()}),
	}
	if s.Socket == config.NoPage {
		s.Socket = ""
	}
	return s
}

// uninstalled is the name of a file beside the socket that weft-agent uninstall creates: this agent will not start
// again.
const uninstalled = "uninstalled"

// leave removes what would outlive agent and dataplane, if Weft is uninstalled and no pod is attached. Otherwise it
// stays, because connections continue while the agent is replaced.
func (a *Agent) leave() error {
	if _, err := os.Lstat(filepath.Join(filepath.Dir(a.config.Socket), uninstalled)); err != nil ||
		len(a.pods.Attachments()) > 0 {
		return nil //nolint:nilerr // without the file there is nothing to do
	}
	a.log.Info("uninstalled: removing nftables tables and VLAN links, returning the uplink to the kernel")
	return errors.Join(a.uplink.Return(), linux.RemoveMasquerade(), linux.RemoveTunnelNAT(),
		linux.RemoveVLANs(desired.ExternalAliasPrefix))
}
