package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// parts returns this node's address blocks by network. Other nodes route packets for them to this node.
func (a *Agent) parts(now *followed) []pod.NodePart {
	var held []pod.Block
	if now.blocks != nil {
		held = now.blocks.Blocks
	}
	own := pod.NodePart{Network: pod.DefaultNetwork, Blocks: blocksOf("", held)}
	for _, p := range a.config.Pools {
		own.Blocks = append(own.Blocks, p.Prefix)
	}
	if a.wantsRanges() {
		own.Blocks = append(own.Blocks, a.inRanges()...)
	}
	parts := []pod.NodePart{own}
	for _, n := range now.view.Networks {
		parts = append(parts, pod.NodePart{Network: n.Name, Blocks: blocksOf(n.Name, held)})
	}
	return parts
}

// announce queues the node's announcement to the other nodes, and replaces one that is not written yet.
func (a *Agent) announce(now *followed) {
	said := announcement.Announcement{UID: now.view.Node.UID, Version: version.String(), Spec: v1.NodeNetworkSpec{Tunnel: a.tunnel()}}
	for _, address := range oneOfAFamily(now.view.Node.Addresses) {
		said.Spec.Addresses = append(said.Spec.Addresses, v1.IP(address.String()))
	}
	for _, p := range a.parts(now) {
		part := v1.NodePart{Name: p.Network, VNI: vniOf(p.Network, now.view.Networks)}
		for _, b := range p.Blocks {
			part.CIDRs = append(part.CIDRs, v1.CIDR(b.String()))
		}
		said.Spec.Networks = append(said.Spec.Networks, part)
	}
	said.Networks, said.Refused = a.observed(now.view)
	said.Externals = a.observedExternals(now)
	said.Taken = a.quarantine.Taken()
	if err := a.health.MissingBut(health.Announced); err != nil {
		said.NotReady = err.Error()
	}
	select {
	case <-a.announcements: // it is out of date
	default:
	}
	a.announcements <- said
}

// tunnel returns how other nodes reach this node.
func (a *Agent) tunnel() v1.Tunnel {
	if a.config.Kubernetes.Tunnel == networks.TunnelNone {
		return v1.Tunnel{Type: v1.TunnelNone, MTU: int32(a.uplink.mtu)}
	}
	return v1.Tunnel{Type: v1.TunnelVXLAN, Port: wire.VXLANPort, MTU: int32(a.uplink.mtu)}
}

// oneOfAFamily returns the first address of each family.
func oneOfAFamily(addresses []netip.Addr) []netip.Addr {
	var first []netip.Addr
	for _, a := range addresses {
		if !slices.ContainsFunc(first, func(f netip.Addr) bool { return f.Is4() == a.Is4() }) {
			first = append(first, a)
		}
	}
	return first
}

func vniOf(network string, networks []pod.Network) int32 {
	for _, n := range networks {
		if n.Name == network {
			return int32(n.VNI)
		}
	}
	return 0
}

// observed returns the state of the cluster's networks on this node: as specified, or the reason why not.
func (a *Agent) observed(view nodeview.View) (has []v1.Observed, refused []v1.Refusal) {
	reasons := *a.refusals.Load()
	for _, name := range view.Deleting {
		if pods, closed := a.lastPods(name); closed {
			has = append(has, v1.Observed{Name: name, Generation: view.Generations[name], Closed: true, Pods: pods})
		} else {
			refused = append(refused, v1.Refusal{Name: name, Reason: "it is being deleted, and this node has not closed it yet"})
		}
	}
	for _, n := range view.Networks {
		if n.Closed {
			continue
		}
		if reason, is := reasons[n.Name]; is {
			refused = append(refused, v1.Refusal{Name: n.Name, Reason: reason})
			continue
		}
		has = append(has, v1.Observed{Name: n.Name, Generation: view.Generations[n.Name]})
	}
	return has, refused
}

// mostNamed limits the pods that one status field names.
const mostNamed = 16

// lastPods returns the names of pods that use a network of the cluster which is being deleted. closed reports whether the node adds no
// more pods to it, so that these are the last ones.
func (a *Agent) lastPods(network string) (pods []string, closed bool) {
	if slices.ContainsFunc(*a.configured.Load(), func(n pod.Network) bool { return n.Name == network }) {
		return nil, true // the configuration of this node has another network of that name
	}
	if !a.network.Networks.IsClosed(network) {
		return nil, false
	}
	for _, at := range a.pods.Attachments() {
		on := slices.ContainsFunc(at.Interfaces, func(i pod.Interface) bool { return i.Network == network })
		if name := cmp.Or(at.Pod.String(), at.Key.ContainerID); on && !slices.Contains(pods, name) {
			pods = append(pods, name)
		}
	}
	slices.Sort(pods)
	return pods[:min(len(pods), mostNamed)], true
}

// announceWait is how long pods wait until the node is announced to the other nodes.
const announceWait = 15 * time.Second

// expectAnnouncement makes pods wait until the node is announced, unless an earlier run announced it: other nodes could not route replies
// to the pods.
func (a *Agent) expectAnnouncement(uid string) {
	var told string
	if _, err := a.state.Get(statefile.BucketCluster, announcedKey, &told); err != nil {
		a.log.Error("state of the announcement not read", "err", err)
	}
	if told != uid {
		a.health.Require(health.Announced, "the other nodes are not told of this one yet")
	}
}

// announced ends the wait of pods, also for the next agent.
func (a *Agent) announced(ctx context.Context, uid string) {
	if err := a.state.Save(ctx, []eventloop.Saved{{Bucket: statefile.BucketCluster, Key: announcedKey, Value: uid}}); err != nil {
		a.log.Error("announcement not recorded, the next agent announces again", "err", err)
	}
	a.health.Set(health.Announced, true, "")
}

// awaitAnnouncement limits how long pods wait after the agent can write the announcement: pods of one node reach each other without it.
func (a *Agent) awaitAnnouncement(ctx context.Context) error {
	if err := a.health.Await(ctx, health.Started); err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, announceWait)
	defer cancel()
	if a.health.Requires(health.Announced) && a.health.Await(bound, health.Announced) != nil && ctx.Err() == nil {
		a.log.Error("node is not announced yet, serving pods without it: pods of other nodes may not reach them", "waited", announceWait)
		a.health.Set(health.Announced, true, "")
	}
	return ctx.Err()
}

// announceAgain is the period in which the written announcement is checked.
const announceAgain = 5 * time.Minute

// announcing writes the node's announcement, and retries.
func (a *Agent) announcing(ctx context.Context) error {
	announcer := announcement.Announcer{Client: a.client, Node: a.config.Kubernetes.Node, Log: a.log.With("room", "k8s")}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 30*time.Second
	var said, written announcement.Announcement
	var told string // UID of the announced Node
	timer := time.NewTimer(0)
	<-timer.C
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case said = <-a.announcements:
		case <-timer.C:
			written = announcement.Announcement{} // it may have been changed in the API server
		}
		if reflect.DeepEqual(said, written) && a.cluster.NodeID() != 0 {
			continue // most changes concern other nodes and need no request
		}
		timer.Stop()
		question, cancel := context.WithTimeout(ctx, oneQuestion)
		err := announcer.Announce(question, said)
		cancel()
		if err != nil {
			next := pause.NextBackOff()
			a.log.Warn("announcement not written, trying again", "err", err, "in", fmt.Sprint(next.Round(time.Millisecond)))
			timer.Reset(next)
			continue
		}
		pause.Reset()
		if told != said.UID {
			a.announced(ctx, said.UID)
			told = said.UID
		}
		written = said
		timer.Reset(announceAgain)
	}
}

// uplink is the link to other nodes.
type uplink struct {
	address netip.Addr // of the node, known to the other nodes
	name    string
	mtu     int  // 0: not known
	owned   bool // by the dataplane
}

// Limits of the wait for the uplink, and the poll interval afterwards.
const (
	uplinkWait = 15 * time.Second
	uplinkLook = 30 * time.Second
)

// errUnreachable is the error of a node without an address of the tunnels' family in the API server.
var errUnreachable = errors.New("the API server knows no address of this node with the tunnels' family: set one on the Node, or choose the tunnel type of the family it has")

// outerAddress returns the node's address for tunnels, of the tunnels' family.
func (a *Agent) outerAddress(addresses []netip.Addr) (netip.Addr, bool) {
	for _, n := range addresses {
		if a.config.Kubernetes.Tunnel == networks.TunnelNone || n.Is4() == (a.config.Kubernetes.Tunnel == networks.TunnelVXLAN4) {
			return n, true
		}
	}
	return netip.Addr{}, false
}

// findUplink returns the link with the node's address and waits for it. Unless the link is required, the wait is limited and the node starts
// without it, because pods of one node do not need it.
func (a *Agent) findUplink(ctx context.Context, addresses []netip.Addr) (uplink, error) {
	address, has := a.outerAddress(addresses)
	if !has {
		a.log.Error("no uplink", "err", errUnreachable, "tunnel", a.config.Kubernetes.Tunnel, "addresses", fmt.Sprint(addresses))
		return uplink{}, nil
	}
	if a.card != nil {
		return a.ownUplink(address)
	}
	bound := uplinkWait
	if a.config.Kubernetes.RequireUplink {
		bound = 0 // none
	}
	look := func() (uplink, error) {
		name, mtu, err := linux.LinkOf(address)
		if err != nil {
			a.health.Set(health.Started, false, "starting: waits for the uplink: "+err.Error())
		}
		return uplink{address: address, name: name, mtu: mtu}, err
	}
	found, err := backoff.Retry(ctx, look, backoff.WithMaxElapsedTime(bound))
	switch {
	case ctx.Err() != nil:
		return found, ctx.Err()
	case err != nil:
		a.log.Error("uplink not found, continuing without it", "err", err)
		return uplink{address: address}, nil
	}
	a.log.Info("uplink", "link", found.name, "address", found.address.String(), "mtu", found.mtu)
	return found, nil
}

// ownUplink returns the card that the dataplane owns. It must have the address that other nodes use.
func (a *Agent) ownUplink(address netip.Addr) (uplink, error) {
	card := a.card.Card
	if !slices.ContainsFunc(card.Addresses, func(k wire.CardAddress) bool { return k.Prefix.Addr() == address }) {
		return uplink{}, fmt.Errorf("dataplane.uplink: network card %s does not have %s, at which other nodes reach this one", card.Link, address)
	}
	return uplink{address: address, name: card.Link, mtu: card.MTU, owned: true}, nil
}

// followUplink sets a health condition when the uplink is missing or is another one than at the start of the agent.
func (a *Agent) followUplink(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		fault := a.uplink.fault()
		a.health.Set(health.Uplink, fault == "", fault)
	}, uplinkLook)
	return ctx.Err()
}

// fault returns the problem with the uplink, or "".
func (u uplink) fault() string {
	if !u.address.IsValid() {
		return errUnreachable.Error()
	}
	name, mtu, err := linux.LinkOf(u.address)
	switch {
	case err != nil:
		return err.Error()
	case u.owned:
		return u.ownedFault()
	case mtu < u.mtu:
		return fmt.Sprintf("link %s carries %d bytes, and %d when the agent started: restart the agent and the pods", name, mtu, u.mtu)
	case name != u.name:
		return fmt.Sprintf("link %s has the node's address, and %q when the agent started: restart the agent", name, u.name)
	}
	return ""
}

// ownedFault returns the problem with a card that the dataplane owns, or "".
func (u uplink) ownedFault() string {
	now, err := linux.ReadCard(u.name)
	if err == nil {
		err = linux.LinkFault(u.name)
	}
	switch {
	case err != nil:
		return err.Error()
	case now.MTU < u.mtu:
		return fmt.Sprintf("link %s carries %d bytes, and %d when the agent started: restart the agent and the pods", u.name, now.MTU, u.mtu)
	}
	return ""
}

// The maximum numbers of rejections that are shown at a time.
const (
	shownRejections = 8 // in a condition's message; of one node in a round of the log
	shownOfNode     = 2 // of one node in a condition's message
)

// showRejections reports the parts of other nodes' announcements that are not used: in a condition and a metric at once, and in the log
// once each after some time, because an announcement may arrive before the Node or the IPBlock that grants it.
func (a *Agent) showRejections(rejected []announcement.Rejection, now *followed) {
	a.rejections.Store(int64(len(rejected)))
	a.health.Set(health.Announcements, len(rejected) == 0, summary(rejected))
	if !now.ticked {
		return
	}
	logged := make(map[announcement.Rejection]bool)
	lines := make(map[string]int) // by node: the rejections of one node do not crowd out those of the others
	for _, r := range rejected {
		if !now.rejected[r] {
			if lines[r.Node] == shownRejections {
				continue // a later round logs it
			}
			lines[r.Node]++
			a.log.Warn("part of a node's announcement rejected", "node", r.Node, "network", r.Network, "part", r.What, "reason", r.Reason)
		}
		logged[r] = true
	}
	now.rejected = logged
}

// summary returns some of the rejections in one line, or "".
func summary(rejected []announcement.Rejection) string {
	var lines []string
	of := make(map[string]int)
	for _, r := range rejected {
		if of[r.Node]++; of[r.Node] <= shownOfNode && len(lines) < shownRejections {
			lines = append(lines, r.String())
		}
	}
	if more := len(rejected) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}
