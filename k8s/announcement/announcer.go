package announcement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
)

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
	Client *client.Client
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
			return fmt.Errorf("announce node %s: %w", a.Node, client.OneLine(err))
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
