package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// thisNode is what the API server says of this node.
func (c *Cluster) thisNode() Node {
	n, exists := c.machines.one(c.config.Node)
	if !exists {
		return Node{}
	}
	return nodeOf(n)
}

// ErrNoNode says that the API server was asked for a node and has none of that name.
var ErrNoNode = errors.New("the API server has no such node")

// Node asks what a node is.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	n, err := c.Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Node{}, fmt.Errorf("ask for node %s: %w", name, ErrNoNode)
	case err != nil:
		return Node{}, fmt.Errorf("ask for node %s: %w", name, oneLine{err})
	}
	return nodeOf(n), nil
}

// nodeOf is a node in the words of the view.
func nodeOf(n *corev1.Node) Node {
	node := Node{UID: string(n.UID), Labels: n.Labels, Pools: poolNames(n.Annotations[pod.AnnotationPools])}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			node.PodCIDRs = append(node.PodCIDRs, p.Masked())
		}
	}
	for _, a := range n.Status.Addresses {
		if address, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			node.Addresses = append(node.Addresses, address.Unmap())
		}
	}
	return node
}

// HasRanges refuses a node without ranges of addresses: it gets them soon after it joins, if at all.
func (n Node) HasRanges(name string) error {
	if len(n.PodCIDRs) == 0 {
		return fmt.Errorf("node %s has no podCIDRs: does kube-controller-manager run with --allocate-node-cidrs?", name)
	}
	return nil
}

// poolNames reads a list of pools from an annotation of a node or a namespace; one that cannot be read names none.
func poolNames(text string) []string {
	var names []string
	if text == "" || json.Unmarshal([]byte(text), &names) != nil {
		return nil
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == "" })
}

func (c *Cluster) switches(v *View) {
	v.Switches.Marks = blocks.DefaultMarks()
	config, exists := c.configs.one(v1.WeftConfigName)
	if !exists {
		return
	}
	spec := config.Spec
	if spec.Paused {
		if v.Paused = spec.PausedReason; v.Paused == "" {
			v.Paused = "the cluster is paused"
		}
	}
	v.Switches.Borrowing, v.Switches.PodInterfaces = spec.Addresses.Borrowing, spec.PodInterfaces
	marks := v.Switches.Marks
	for _, set := range []struct {
		to   *int
		from *int32
	}{{&marks.Low, spec.Addresses.LowWater}, {&marks.High, spec.Addresses.HighWater}, {&marks.MaxBlocks, spec.Addresses.MaxBlocks}} {
		if set.from != nil {
			*set.to = int(*set.from)
		}
	}
	if w := spec.Addresses.WarmBlocks; w != nil && spec.Addresses.LowWater == nil {
		marks.WarmBlocks = int(*w)
	}
	if d := spec.Addresses.ReleaseAfter; d != nil {
		marks.Grace = d.Duration
	}
	marks.High = max(marks.High, marks.Low) // where only one of them is said
	if err := marks.Validate(); err != nil {
		v.Faults = append(v.Faults, Fault{"WeftConfig", config.Name, err.Error()})
		return
	}
	v.Switches.Marks = marks
}

// prefixes reads what the API server has checked; invalid entries are skipped.
func prefixes(list []v1.CIDR) []netip.Prefix {
	var read []netip.Prefix
	for _, text := range list {
		if p := prefixOf(text); p.IsValid() {
			read = append(read, p.Masked())
		}
	}
	return read
}

// prefixOf reads one; not valid: it is none.
func prefixOf(text v1.CIDR) netip.Prefix {
	p, err := netip.ParsePrefix(string(text))
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// NodeNetworks lists what the other nodes say of themselves.
func (c *Cluster) NodeNetworks() []*v1.NodeNetwork {
	return slices.DeleteFunc(c.nodes.all(), func(n *v1.NodeNetwork) bool { return n.Name == c.config.Node })
}

// TaintNotReady is the key of a taint, with any effect, with which kubelet may register a node, so that no pod is put there
// before the agent serves pods.
const TaintNotReady = v1.Group + "/agent-not-ready"

func isTainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, isNotReady)
}

func isNotReady(t corev1.Taint) bool { return t.Key == TaintNotReady }

// TaintedInVain are the nodes that have the taint still, though their agents serve pods. What an agent said of an earlier
// node of the same name does not count.
func (o *Overview) TaintedInVain() []*corev1.Node {
	if o.machines == nil {
		return nil
	}
	return slices.DeleteFunc(o.machines.all(), func(n *corev1.Node) bool {
		said, exists := o.nodes.one(n.Name)
		return !isTainted(n) || !exists || !servesPods(said, n.UID)
	})
}

func servesPods(said *v1.NodeNetwork, node types.UID) bool {
	ofNode := func(o metav1.OwnerReference) bool { return o.UID == node }
	return slices.ContainsFunc(said.OwnerReferences, ofNode) && meta.IsStatusConditionTrue(said.Status.Conditions, v1.ConditionReady)
}

// Untaint removes only the taint from a node, if the node was not changed meanwhile.
func (c *Client) Untaint(ctx context.Context, n *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion},
		"spec":     map[string]any{"taints": slices.DeleteFunc(slices.Clone(n.Spec.Taints), isNotReady)},
	})
	if err != nil {
		return err
	}
	if _, err := c.Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("take the taint %s off node %s: %w", TaintNotReady, n.Name, err)
	}
	return nil
}

// NodeID is the number that this node made sure of; 0: it has none yet.
func (c *Cluster) NodeID() uint32 {
	own, there := c.nodes.one(c.config.Node)
	if !there || !own.Spec.NodeIDConfirmed {
		return 0
	}
	return uint32(own.Spec.NodeID)
}

// Mesh is what this node uses of the other nodes' announcements.
type Mesh struct {
	Nodes    []pod.Node               // those that are there, by name
	Rejected []announcement.Rejection // the parts of announcements that are not used
}

// meshView keeps the mesh until an object changes that it depends on.
type meshView struct {
	stale atomic.Bool // set after an informer has the change

	mu     sync.Mutex
	now    Mesh
	former announcement.Former // all that is remembered
	used   announcement.Former // what of it is needed
}

// inUse are the grants that are gone and still in use.
func (m *meshView) inUse() announcement.Former {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Mesh validates the other nodes' announcements. Until the API server has shown all that they are validated against it is
// empty.
func (c *Cluster) Mesh() Mesh {
	c.mesh.mu.Lock()
	defer c.mesh.mu.Unlock()
	if len(c.Missing()) > 0 {
		return Mesh{}
	}
	if !c.mesh.stale.Swap(false) {
		return c.mesh.now
	}
	state := c.grants()
	c.mesh.former = c.mesh.former.Learn(state)
	state.Former = c.mesh.former
	validator, mesh := announcement.NewValidator(state), Mesh{}
	announced := c.NodeNetworks()
	slices.SortFunc(announced, func(x, y *v1.NodeNetwork) int { return strings.Compare(x.Name, y.Name) })
	for _, n := range announced {
		node, rejected := validator.Accept(n)
		mesh.Rejected = append(mesh.Rejected, rejected...)
		if _, exists := state.Nodes[n.Name]; exists {
			mesh.Nodes = append(mesh.Nodes, node)
		}
	}
	c.mesh.now, c.mesh.used = mesh, validator.Used()
	return mesh
}

// grants are the objects that announcements are validated against.
func (c *Cluster) grants() announcement.Cluster {
	v := emptyView()
	v.Node = c.thisNode()
	c.customNetworks(&v)
	c.ipPools(&v)
	state := announcement.Cluster{
		Nodes: make(map[string]announcement.Node), Pools: v.ClaimedFrom(), Blocks: slices.Concat(c.blocks.all(), c.foreign.all()),
	}
	for _, n := range c.machines.all() {
		node := nodeOf(n)
		state.Nodes[n.Name] = announcement.Node{Ranges: node.PodCIDRs, Addresses: node.Addresses}
	}
	for _, s := range c.services.all() {
		for _, text := range s.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				state.Services = append(state.Services, p.Masked())
			}
		}
	}
	if a, err := netip.ParseAddr(c.config.Client.host()); err == nil {
		state.Servers = append(state.Servers, a.Unmap())
	}
	return state
}

// PodBlocks are a keeper's blocks in the words of the node: its own, and of other nodes' the addresses that they lend it.
func PodBlocks(node string, held []v1.IPBlock) []pod.Block {
	var list []pod.Block
	for i := range held {
		b := &held[i]
		prefix, err := blocks.Parse(b)
		if err != nil {
			continue
		}
		if string(b.Spec.Node) == node {
			list = append(list, pod.Block{Network: string(b.Spec.Network), Prefix: prefix, Withheld: addresses(b.Spec.Offered)})
			continue
		}
		for _, l := range b.Spec.Borrowed {
			if a, err := netip.ParseAddr(string(l.Address)); err == nil && string(l.Node) == node {
				list = append(list, pod.Block{Network: string(b.Spec.Network), Prefix: netip.PrefixFrom(a, a.BitLen())})
			}
		}
	}
	return list
}

// addresses reads what the API server has checked; invalid entries are skipped.
func addresses(texts []v1.IP) []netip.Addr {
	var read []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(string(text)); err == nil {
			read = append(read, a)
		}
	}
	return read
}

// lastNodeID is the highest number of a node.
const lastNodeID = 1<<16 - 1

// Announcement is what a node tells the others of itself.
type Announcement struct {
	UID  string // of the Node, which owns what is written
	Spec v1.NodeNetworkSpec

	Version   string
	Refused   []v1.Refusal
	Networks  []v1.Observed
	Externals []v1.ObservedExternal
	Taken     string // its pods whose addresses another node owns; "": none
	NotReady  string // why the node does not serve pods; "": it does
}

// Announcer is the only writer of the NodeNetwork of its node. The node's number is chosen by writing it down and
// looking, afterwards, whether another node has written the same: of two that did, at least one sees the other, for it
// looked after both had written. Who sees the other yields. A number that a node made sure of stays.
type Announcer struct {
	Client *Client
	Node   string
	Log    *slog.Logger
}

// errYield says that a number was another's, and that a next one was written down.
var errYield = errors.New("the number is another node's")

// Announce makes the API server have what is announced. It is to be called again after an error.
func (a *Announcer) Announce(ctx context.Context, said Announcement) error {
	if said.UID == "" {
		return fmt.Errorf("announce node %s: the API server has no such node", a.Node)
	}
	for {
		there, err := a.write(ctx, said)
		if err == nil && !there.Spec.NodeIDConfirmed {
			there, err = a.confirm(ctx, there)
		}
		if errors.Is(err, errYield) {
			continue
		}
		if err == nil {
			err = a.tell(ctx, there, said)
		}
		if err != nil {
			return fmt.Errorf("announce node %s: %w", a.Node, oneLine{err})
		}
		return nil
	}
}

// write makes the spec what is announced, with the number that the node has or tries to have.
func (a *Announcer) write(ctx context.Context, said Announcement) (*v1.NodeNetwork, error) {
	there, err := a.Client.NodeNetworks().Get(ctx, a.Node, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	next := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: a.Node}}
	exists := err == nil
	if exists {
		next = there.DeepCopy()
	}
	id, confirmed := next.Spec.NodeID, next.Spec.NodeIDConfirmed
	next.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: a.Node, UID: types.UID(said.UID)}}
	next.Spec = *said.Spec.DeepCopy()
	if next.Spec.NodeID, next.Spec.NodeIDConfirmed = id, confirmed; id == 0 {
		if next.Spec.NodeID, err = a.choose(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case !exists:
		return a.Client.NodeNetworks().Create(ctx, next, metav1.CreateOptions{})
	case equality.Semantic.DeepEqual(there.Spec, next.Spec) && equality.Semantic.DeepEqual(there.OwnerReferences, next.OwnerReferences):
		return there, nil
	}
	return a.Client.NodeNetworks().Update(ctx, next, metav1.UpdateOptions{})
}

// choices is among how many of the lowest free numbers one is chosen, so that nodes that join together rarely meet.
const choices = 64

// choose picks a number that no node has.
func (a *Announcer) choose(ctx context.Context) (int32, error) {
	taken, err := a.taken(ctx)
	if err != nil {
		return 0, err
	}
	var free []int32
	for id := int32(1); id <= lastNodeID && len(free) < choices; id++ {
		if taken[id] == "" {
			free = append(free, id)
		}
	}
	if len(free) == 0 {
		return 0, fmt.Errorf("all %d numbers of nodes are taken", lastNodeID)
	}
	return free[rand.IntN(len(free))], nil
}

// taken are the numbers of the other nodes, as the API server has them now.
func (a *Announcer) taken(ctx context.Context) (map[int32]string, error) {
	list, err := a.Client.NodeNetworks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	taken := make(map[int32]string)
	for i := range list.Items {
		if n := &list.Items[i]; n.Name != a.Node && n.Spec.NodeID != 0 {
			taken[n.Spec.NodeID] = n.Name
		}
	}
	return taken, nil
}

// confirm makes sure of the number that is written down, or writes another one down.
func (a *Announcer) confirm(ctx context.Context, there *v1.NodeNetwork) (*v1.NodeNetwork, error) {
	taken, err := a.taken(ctx)
	if err != nil {
		return nil, err
	}
	next := there.DeepCopy()
	other := taken[there.Spec.NodeID]
	if other == "" {
		next.Spec.NodeIDConfirmed = true
		a.Log.Info("the node has a number", "node", a.Node, "id", next.Spec.NodeID)
		return a.Client.NodeNetworks().Update(ctx, next, metav1.UpdateOptions{})
	}
	a.Log.Info("number of the node is another's too, trying the next", "id", there.Spec.NodeID, "node", other)
	if next.Spec.NodeID, err = a.choose(ctx); err != nil {
		return nil, err
	}
	if _, err := a.Client.NodeNetworks().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	return nil, errYield
}

// tell writes the status.
func (a *Announcer) tell(ctx context.Context, there *v1.NodeNetwork, said Announcement) error {
	next := there.DeepCopy()
	next.Status.Version, next.Status.Refused, next.Status.Networks = said.Version, said.Refused, said.Networks
	next.Status.Externals = said.Externals
	ready := metav1.Condition{
		Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: "ServesPods", Message: "the node serves pods", ObservedGeneration: there.Generation,
	}
	if said.NotReady != "" {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NotServing", said.NotReady
	}
	meta.SetStatusCondition((*[]metav1.Condition)(&next.Status.Conditions), ready)
	addresses := metav1.Condition{
		Type: v1.ConditionAddresses, Status: metav1.ConditionTrue, Reason: v1.ReasonInUse, Message: "all addresses of pods belong to blocks of this node",
		ObservedGeneration: there.Generation,
	}
	if said.Taken != "" {
		addresses.Status, addresses.Reason, addresses.Message = metav1.ConditionFalse, v1.ReasonOverlap, said.Taken
	}
	meta.SetStatusCondition((*[]metav1.Condition)(&next.Status.Conditions), addresses)
	if equality.Semantic.DeepEqual(there.Status, next.Status) {
		return nil
	}
	_, err := a.Client.NodeNetworks().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}
