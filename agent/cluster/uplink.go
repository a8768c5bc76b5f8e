package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/wire"
)

// Uplink is the link to other nodes.
type Uplink struct {
	Address netip.Addr // of the node, known to the other nodes
	Name    string
	MTU     int  // 0: not known
	owned   bool // by the dataplane
}

// Limits of the wait for the uplink, and the poll interval afterwards.
const (
	uplinkWait = 15 * time.Second
	uplinkLook = 30 * time.Second
)

// errUnreachable is the error of a node without an address of the tunnels' family in the API server.
var errUnreachable = errors.New(
	"the API server knows no address of this node with the tunnels' family: set one on the Node, or choose the tunnel type of the family it has")

// fault returns the problem with the uplink, or "".
func (u Uplink) fault() string {
	if !u.Address.IsValid() {
		return errUnreachable.Error()
	}
	name, mtu, err := linux.LinkByAddress(u.Address)
	switch {
	case err != nil:
		return err.Error()
	case u.owned:
		return u.ownedFault()
	case mtu < u.MTU:
		return fmt.Sprintf("link %s carries %d bytes, and %d when the agent started: restart the agent and the pods",
			name, mtu, u.MTU)
	case name != u.Name:
		return fmt.Sprintf("link %s has the node's address, and %q when the agent started: restart the agent", name,
			u.Name)
	}
	return ""
}

// ownedFault returns the problem with a card that the dataplane owns, or "".
func (u Uplink) ownedFault() string {
	now, err := linux.ReadCard(u.Name)
	if err == nil {
		err = linux.CheckLinkUp(u.Name)
	}
	switch {
	case err != nil:
		return err.Error()
	case now.MTU < u.MTU:
		return fmt.Sprintf("link %s carries %d bytes, and %d when the agent started: restart the agent and the pods",
			u.Name, now.MTU, u.MTU)
	}
	return ""
}

// follow sets a health condition when the uplink is missing or is another one than at the start of the agent.
func (u Uplink) follow(ctx context.Context, conditions *health.Conditions) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		fault := u.fault()
		conditions.Set(health.Uplink, fault == "", fault)
	}, uplinkLook)
	return ctx.Err()
}

// oneQuestion bounds one request for the Node.
const oneQuestion = 5 * time.Second

// nodePatience is how long the agent waits for its Node before it uses the state of an earlier run. Running pods are
// not affected; a node that has just booted may reach its services a little later than it starts the agent.
const nodePatience = 5 * time.Second

// NodeSource learns this node's properties from the cluster, and finds the node's uplink.
type NodeSource struct {
	Config  config.Config
	Client  *client.Client
	Cluster *nodeview.Cluster
	Card    *wire.Card // that the dataplane owns; nil: none
	Health  *health.Conditions
	Log     *slog.Logger
}

// Learn requests the Node until it is known, and finds the uplink: they determine the addresses and the MTU of pods.
func (s *NodeSource) Learn(ctx context.Context) (node nodeview.Node, uplink Uplink, err error) {
	name := s.Config.Kubernetes.Node
	until := time.Now().Add(nodePatience)
	ask := func() (nodeview.Node, error) { return s.askForNode(ctx, name, until) }
	node, err = retry.Until(ctx, 100*time.Millisecond, nodePatience, ask)
	if err != nil {
		return node, uplink, fmt.Errorf("node %s: %w", name, err)
	}
	uplink, err = s.findUplink(ctx, node.Addresses)
	return node, uplink, err
}

// askForNode requests the Node once. While the API server is away the state of an earlier run serves, but not if the
// API server says that the Node is deleted or has another UID: another node may have its ranges now.
func (s *NodeSource) askForNode(ctx context.Context, name string, until time.Time) (nodeview.Node, error) {
	question, cancel := context.WithTimeout(ctx, oneQuestion)
	defer cancel()
	node, err := nodeview.ReadNode(question, s.Client, name)
	known := s.Cluster.View().Node
	isKnown := known.UID != "" && s.suffices(name, known) == nil
	switch {
	case err == nil:
		err = s.suffices(name, node)
		isKnown = isKnown && node.UID == known.UID
	case errors.Is(err, nodeview.ErrNoNode):
		isKnown = false
	default:
		isKnown = isKnown && !time.Now().Before(until)
	}
	switch {
	case err == nil:
		return node, nil
	case isKnown:
		s.Log.Warn("the Node object was not read, using the last known one", "node", name, "err", err)
		return known, nil
	}
	s.Log.Warn("node not read from the API server, retrying", "node", name, "err", err)
	s.Health.Set(health.Started, false, "waits for the API server to say what the node is: "+err.Error())
	return node, err
}

// suffices returns an error with the property that the agent needs and the Node lacks.
func (s *NodeSource) suffices(name string, n nodeview.Node) error {
	if _, has := s.outerAddress(n.Addresses); !has && s.Config.Kubernetes.RequireUplink {
		return errUnreachable
	}
	if !s.Config.HasRanges() {
		return nil
	}
	return n.HasRanges(name)
}

// outerAddress returns the node's address for tunnels, of the tunnels' family.
func (s *NodeSource) outerAddress(addresses []netip.Addr) (netip.Addr, bool) {
	for _, n := range addresses {
		if s.Config.Kubernetes.Tunnel == networks.TunnelNone ||
			n.Is4() == (s.Config.Kubernetes.Tunnel == networks.TunnelVXLAN4) {
			return n, true
		}
	}
	return netip.Addr{}, false
}

// findUplink returns the link with the node's address and waits for it. Unless the link is required, the wait is
// limited and the node starts without it, because pods of one node do not need it.
func (s *NodeSource) findUplink(ctx context.Context, addresses []netip.Addr) (Uplink, error) {
	address, has := s.outerAddress(addresses)
	if !has {
		s.Log.Error("no uplink", "err", errUnreachable, "tunnel", s.Config.Kubernetes.Tunnel,
			"addresses", fmt.Sprint(addresses))
		return Uplink{}, nil
	}
	if s.Card != nil {
		return s.ownUplink(address)
	}
	bound := uplinkWait
	if s.Config.Kubernetes.RequireUplink {
		bound = 0 // none
	}
	look := func() (Uplink, error) {
		name, mtu, err := linux.LinkByAddress(address)
		if err != nil {
			s.Health.Set(health.Started, false, "waits for the uplink: "+err.Error())
		}
		return Uplink{Address: address, Name: name, MTU: mtu}, err
	}
	found, err := backoff.Retry(ctx, look, backoff.WithMaxElapsedTime(bound))
	switch {
	case ctx.Err() != nil:
		return found, ctx.Err()
	case err != nil:
		s.Log.Error("uplink not found, continuing without it", "err", err)
		return Uplink{Address: address}, nil
	}
	s.Log.Info("uplink", "link", found.Name, "address", found.Address.String(), "mtu", found.MTU)
	return found, nil
}

// ownUplink returns the card that the dataplane owns. It must have the address that other nodes use.
func (s *NodeSource) ownUplink(address netip.Addr) (Uplink, error) {
	card := s.Card
	if !slices.ContainsFunc(card.Addresses, func(k wire.CardAddress) bool { return k.Prefix.Addr() == address }) {
		return Uplink{}, fmt.Errorf(
			"dataplane.uplink: network card %s does not have %s, at which other nodes reach this one", card.Link,
			address)
	}
	return Uplink{Address: address, Name: card.Link, MTU: card.MTU, owned: true}, nil
}
