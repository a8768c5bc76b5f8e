package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/dra"
	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/k8s/networkstatus"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

// Member is a node as a member of its cluster:
//
//	New --> Learn: the Node, its uplink --> Join: the parts that need the restored state --> Run
type Member struct {
	View   *nodeview.Cluster // the API server's objects
	Uplink Uplink
	Ranges []netaddr.Pool // the ranges of the node at the start of the agent, if pools are its ranges
	Events *PodEvents
	Blocks *Blocks // nil before Join

	Enforced *policies.Policies // nil: policies are not enforced

	MemberConfig
	client    *client.Client
	announcer *Announcer
	follower  *Follower
	report    *PodReport
	claims    *claimKeeper
	policies  *UnenforcedPolicies // nil: NetworkPolicies are not reported
	enforcer  *Enforcer           // nil: policies are not enforced
	annotator *pods.Annotator     // of the annotation network-status; nil: none
	edits     *pods.Edits
	changes   podChanges
}

// MemberConfig has the dependencies of a member that exist from the start.
type MemberConfig struct {
	Config config.Config
	State  *statefile.File
	Health *health.Conditions
	Log    *slog.Logger
}

// New prepares the connection to the API server and sends no request.
func New(c MemberConfig) (m *Member, err error) {
	m = &Member{MemberConfig: c, Events: &PodEvents{Multus: c.Config.Kubernetes.Multus}}
	connection, err := client.Connection(c.Config.Kubernetes.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if m.client, err = client.New(connection); err != nil {
		return nil, err
	}
	view := nodeview.Config{
		Node: c.Config.Kubernetes.Node, Client: m.client, Tunnel: tunnelOf(c.Config.Kubernetes),
		Log: c.Log.With("component", "k8s"), OnPod: pods.Annotated(m.onPod),
	}
	var known nodeview.View
	isKnown, err := c.State.Get(statefile.BucketCluster, viewKey, &known)
	if err != nil {
		c.Log.Error("saved view of the cluster not read", "err", err)
	}
	if isKnown {
		view.Known = &known
	}
	if m.View, err = nodeview.New(view); err != nil {
		return nil, err
	}
	m.edits = pods.NewEdits(m.permitsEdits, m.changes.apply)
	m.Events.ChangesRunning = func() bool {
		switches, _ := m.View.Switches()
		return switches.InterfaceChanges
	}
	if c.Config.Kubernetes.EnforcePolicies {
		m.Enforced = policies.New(policies.Config{
			Node:             view.Node,
			Client:           m.client,
			Log:              c.Log.With("component", "policies"),
			Protected:        protectedOf(c.Config),
			TrustExternalIPs: c.Config.Kubernetes.TrustServiceExternalIP,
		})
	}
	m.Events.Writer = events.NewWriter(m.client, view.Node, m.View, view.Log)
	m.announcer = NewAnnouncer(AnnouncerConfig{
		Node: view.Node, Client: m.client, Cluster: m.View, State: c.State, Health: c.Health, Log: c.Log,
	})
	return m, nil
}

// onPod takes the annotations of a pod of this node; nil: it is gone.
func (m *Member) onPod(id pod.ID, annotations map[string]string) {
	m.Events.Edited(id, annotations)
	m.edits.Show(id, annotations)
}

// permitsEdits reports whether the API server, not only the memory of an earlier run, permits changes of running pods.
// Until policies are known, a change would close the pod.
func (m *Member) permitsEdits() bool {
	switches, isComplete := m.View.Switches()
	return isComplete && switches.InterfaceChanges && (m.Enforced == nil || m.Enforced.Synced())
}

// NewDriver returns the node's DRA driver; Node and Client of the configuration are the member's.
func (m *Member) NewDriver(c dra.Config) (*dra.Driver, error) {
	c.Node = m.Config.Kubernetes.Node
	return dra.Connect(c, m.client)
}

// Learn waits for the cluster's data about the node. card is the network card that the dataplane owns; nil: none.
func (m *Member) Learn(ctx context.Context, card *wire.Card) error {
	source := NodeSource{Config: m.Config, Client: m.client, Cluster: m.View, Card: card, Health: m.Health, Log: m.Log}
	node, uplink, err := source.Learn(ctx)
	if err != nil {
		return err
	}
	m.Uplink = uplink
	m.Health.Advise(health.Uplink)
	if m.Config.Kubernetes.TunnelPort() != 0 {
		m.Health.Advise(health.TunnelPort)
	}
	m.Health.Advise(health.Announcements)
	m.Health.Advise(health.APIServer)
	m.announcer.Expect(node.UID)
	if !m.Config.HasRanges() {
		return nil
	}
	m.Ranges = RangesOf(node)
	var texts []string
	for _, p := range m.Ranges {
		texts = append(texts, config.PoolText(p))
	}
	m.Log.Info("pools are the node's ranges", "node", m.Config.Kubernetes.Node, "pools", fmt.Sprint(texts))
	return config.ValidatePools(m.Ranges)
}

// Parts are the parts of the agent that a member works with once the state is restored: address blocks are parts of
// networks.
type Parts struct {
	Loop       *eventloop.Loop
	Scheduler  *kvscheduler.Scheduler
	Network    *ipnet.Network
	Networks   *NodeNetworks
	Pods       *podmanager.Manager
	Owners     *owners.Index
	Replayer   *recovery.Replayer
	Quarantine *recovery.Quarantine
}

// Join prepares what Run does.
func (m *Member) Join(p Parts) (err error) {
	c := m.Config.Kubernetes
	ofPools := c.Addresses == config.OfPools
	m.Blocks, err = NewBlocks(BlocksConfig{
		Node:       c.Node,
		OfPools:    ofPools,
		Required:   ofPools && len(m.Config.Addresses.Pools) == 0,
		Cluster:    m.View,
		Networks:   p.Network.Networks,
		State:      m.State,
		Pods:       p.Pods,
		Replayer:   p.Replayer,
		Quarantine: p.Quarantine,
		Wiring:     p.Network.Pods,
		Health:     m.Health,
		Log:        m.Log,
	}, m.client.BlockStore())
	if err != nil {
		return err
	}
	p.Network.Networks.HoldFor(m.View.View().IPAMClaims) // of an earlier run, until the watch has shown them
	m.follower = NewFollower(FollowerConfig{
		Parts:     p,
		Config:    m.Config,
		Cluster:   m.View,
		Blocks:    m.Blocks,
		Announcer: m.announcer,
		State:     m.State,
		Health:    m.Health,
		UplinkMTU: m.Uplink.MTU, Enforced: m.Enforced, Log: m.Log,
	})
	m.Events.Scheduler = p.Scheduler
	m.Events.Pods = p.Pods
	m.Events.Owners = p.Owners
	m.changes.pods = p.Pods
	m.changes.tell = m.Events.Writer.Tell
	m.report = NewPodReport(m.View, p.Pods, m.Log)
	m.claims = &claimKeeper{
		attachments: p.Pods.Attachments,
		exists:      func(id pod.ID) bool { return m.View.Pod(id) != nil },
		claims:      m.View,
		log:         m.Log,
	}
	switch {
	case m.Enforced != nil:
		m.Health.Advise(health.Policies)
		m.enforcer = &Enforcer{
			Policies:    m.Enforced,
			Loop:        p.Loop,
			Attachments: p.Pods.Attachments,
			Health:      m.Health,
			Tell:        m.Events.Writer.Tell,
			Log:         m.Log,
		}
	case c.ReportPolicies:
		m.Health.Advise(health.Policies)
		m.policies = &UnenforcedPolicies{
			Count:       m.client.CountPolicies,
			Health:      m.Health,
			Log:         m.Log,
			Attachments: p.Pods.Attachments,
		}
	}
	if !c.Multus && c.NetworkStatus { // else Multus writes it, or it is disabled
		m.annotator = m.View.NewAnnotator(networkstatus.Annotation, func(id pod.ID) (string, bool) {
			return networkstatus.Of(p.Pods.OfPod(id))
		})
	}
	return nil
}

// Observe takes what happened to an attachment. It does not block.
func (m *Member) Observe(o podmanager.Outcome) {
	m.Events.Failed(o)
	m.Events.Unknown(o)
	m.report.Observe(o)
	m.follower.CountChange(o)
	if o.Happening == podmanager.Added && !o.Pod.IsZero() {
		m.edits.Compare(o.Pod)
	}
	switch {
	case m.annotator == nil:
	case o.Happening == podmanager.Changed && m.hasLostStatus(o):
		text, _ := networkstatus.Of([]pod.Attachment{*o.Before})
		m.annotator.Withdraw(o.Pod, text)
	case o.Happening == podmanager.Added, o.Happening == podmanager.Changed:
		m.annotator.Tell(o.Pod)
	case o.Happening == podmanager.Removed:
		if text, ours := networkstatus.Of([]pod.Attachment{*o.Attachment}); ours {
			m.annotator.Withdraw(o.Pod, text)
		}
	}
}

// hasLostStatus reports whether a change removed the last interface of a pod whose main interface is another plugin's.
func (m *Member) hasLostStatus(o podmanager.Outcome) bool {
	_, was := networkstatus.Of([]pod.Attachment{*o.Before})
	_, is := networkstatus.Of([]pod.Attachment{*o.Attachment})
	return was && !is
}

// Rejections returns the number of rejected parts of other nodes' announcements.
func (m *Member) Rejections() int { return int(m.follower.rejections.Load()) }

// Others returns the other nodes, as the API server last showed them; none before. The caller must not change them.
func (m *Member) Others() []pod.Node {
	if others := m.follower.others.Load(); others != nil {
		return *others
	}
	return nil
}

// NodeNames returns the names of the other nodes by ID, as the API server last showed them; none before.
func (m *Member) NodeNames() map[uint32]string {
	names := make(map[uint32]string)
	for _, n := range m.Others() {
		names[n.ID] = n.Name
	}
	return names
}

// Run runs the parts that use the API server until ctx ends. Addresses are published when all pods are restored.
func (m *Member) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.View.Run(ctx) })
	group.Go(func() error { return m.watchAPIServer(ctx) })
	if m.Enforced != nil {
		group.Go(func() error { return m.Enforced.Run(ctx) })
	}
	group.Go(func() error { return m.follower.Run(ctx) })
	group.Go(func() error { return m.Uplink.follow(ctx, m.Health) })
	if m.Config.Kubernetes.TunnelPort() != 0 {
		group.Go(func() error { return m.tunnelPort().follow(ctx) })
	}
	group.Go(func() error { return m.announcer.Run(ctx) })
	group.Go(func() error { return m.announcer.Await(ctx) })
	group.Go(func() error { return m.Events.Writer.Run(ctx) })
	group.Go(func() error { return m.Blocks.Run(ctx) })
	group.Go(func() error {
		if err := m.Health.Await(ctx, health.Started); err != nil {
			return err
		}
		group.Go(func() error { return m.report.Run(ctx) })
		group.Go(func() error { return m.edits.Run(ctx) })
		group.Go(func() error { return m.claims.run(ctx) })
		if m.enforcer != nil {
			group.Go(func() error { return m.enforcer.Run(ctx) })
		}
		if m.policies != nil {
			group.Go(func() error { return m.policies.Run(ctx) })
		}
		if m.annotator != nil {
			group.Go(func() error { return m.annotator.Run(ctx) })
		}
		return m.Blocks.Publish(ctx)
	})
	return group.Wait()
}

// checkAPIServer is the interval of checks whether the API server answers.
const checkAPIServer = time.Second

// watchAPIServer keeps the condition that the API server answers. Pods are served without it, from the last view of the
// cluster.
func (m *Member) watchAPIServer(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) {
		if err := m.View.Failure(); err != nil {
			m.Health.Set(health.APIServer, false,
				"the API server does not answer, the last view of the cluster is used: "+
					line.Of(err.Error(), line.Cause))
			return
		}
		m.Health.Set(health.APIServer, true, "")
	}, checkAPIServer)
	return ctx.Err()
}

// selected resolves the NetworkAttachmentDefinitions that a pod selects to interface requests.
func (m *Member) selected(ctx context.Context, request *pod.Request) ([]pod.InterfaceRequest, error) {
	selections, err := pod.Selections(request.Annotations, request.ID.Namespace)
	if err != nil {
		return nil, refusedSelection(request, pod.CodeInvalidAnnotation, err)
	}
	var requests []pod.InterfaceRequest
	for _, s := range selections {
		found, err := m.View.Definition(ctx, s)
		if err != nil {
			return nil, refusedSelection(request, pod.CodeTryAgain, err)
		}
		d, err := pod.ParseDefinition(found.Config)
		switch {
		case errors.Is(err, pod.ErrOtherPlugin):
			return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: annotation %s: NetworkAttachmentDefinition %s: %w: "+
				"such interfaces are made where Multus is on the node, with kubernetes.multus in the agent's configuration",
				request, pod.AnnotationNetworks, s.Definition(), err)
		case err != nil:
			return nil, pod.Errorf(pod.CodeInvalidConfig, "%s: NetworkAttachmentDefinition %s: config: %w", request,
				s.Definition(), err)
		}
		requests = append(requests, d.Request(s))
	}
	return requests, nil
}

// refusedSelection adds the pod to an error and keeps its code.
func refusedSelection(request *pod.Request, code uint, err error) error {
	if own, ok := errors.AsType[*pod.Error](err); ok {
		code = own.Code
	}
	return pod.Errorf(code, "%s: %w", request, err)
}
