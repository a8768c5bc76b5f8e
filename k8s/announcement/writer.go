package announcement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
)

// lastNodeID is the highest number of a node.
const lastNodeID = 1<<16 - 1

// Announcement is the content of the NodeNetwork of a node.
type Announcement struct {
	UID  string // of the Node, the owner of the object
	Spec v1.NodeNetworkSpec

	Version   string
	Refused   []v1.Refusal
	Networks  []v1.Observed
	Externals []v1.ObservedExternal
	Taken     string // pods with addresses that another node owns; "": none
	NotReady  string // why the node does not serve pods; "": it does
}

// Writer is the only writer of the NodeNetwork of its node. It chooses the node's number by a write and a read: if
// two nodes write the same number, at least one of them reads the other's, because it reads after both writes, and
// chooses another one. A confirmed number is final.
type Writer struct {
	Client *client.Client
	Node   string
	Log    *slog.Logger
}

// errYield means that another node has the number, and that the next one was written.
var errYield = errors.New("another node has the number")

// Announce writes the NodeNetwork if it differs. Call it again after an error.
func (w *Writer) Announce(ctx context.Context, content Announcement) error {
	if content.UID == "" {
		return fmt.Errorf("announce node %s: the API server has no such node", w.Node)
	}
	for {
		there, err := w.write(ctx, content)
		if err == nil && !there.Spec.NodeIDConfirmed {
			there, err = w.confirm(ctx, there)
		}
		if errors.Is(err, errYield) {
			continue
		}
		if err == nil {
			err = w.writeStatus(ctx, there, content)
		}
		if err != nil {
			return fmt.Errorf("announce node %s: %w", w.Node, client.OneLine(err))
		}
		return nil
	}
}

// write writes the spec, with the number that the node has or tries to get.
func (w *Writer) write(ctx context.Context, content Announcement) (*v1.NodeNetwork, error) {
	there, err := w.Client.NodeNetworks().Get(ctx, w.Node, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	next := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: w.Node}}
	exists := err == nil
	if exists {
		next = there.DeepCopy()
	}
	id := next.Spec.NodeID
	confirmed := next.Spec.NodeIDConfirmed
	next.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: w.Node, UID: types.UID(content.UID)},
	}
	next.Spec = *content.Spec.DeepCopy()
	next.Spec.NodeID = id
	next.Spec.NodeIDConfirmed = confirmed
	if id == 0 {
		if next.Spec.NodeID, err = w.choose(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case !exists:
		return w.Client.NodeNetworks().Create(ctx, next, metav1.CreateOptions{})
	case equality.Semantic.DeepEqual(there.Spec, next.Spec) &&
		equality.Semantic.DeepEqual(there.OwnerReferences, next.OwnerReferences):
		return there, nil
	}
	return w.Client.NodeNetworks().Update(ctx, next, metav1.UpdateOptions{})
}

// choices is the number of lowest free numbers to choose from, so that nodes that join together rarely choose the same.
const choices = 64

// choose returns a free number.
func (w *Writer) choose(ctx context.Context) (int32, error) {
	taken, err := w.taken(ctx)
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

// taken reads the numbers of the other nodes.
func (w *Writer) taken(ctx context.Context) (map[int32]string, error) {
	list, err := w.Client.NodeNetworks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	taken := make(map[int32]string)
	for i := range list.Items {
		if n := &list.Items[i]; n.Name != w.Node && n.Spec.NodeID != 0 {
			taken[n.Spec.NodeID] = n.Name
		}
	}
	return taken, nil
}

// confirm confirms the written number, or writes another one.
func (w *Writer) confirm(ctx context.Context, there *v1.NodeNetwork) (*v1.NodeNetwork, error) {
	taken, err := w.taken(ctx)
	if err != nil {
		return nil, err
	}
	next := there.DeepCopy()
	other := taken[there.Spec.NodeID]
	if other == "" {
		next.Spec.NodeIDConfirmed = true
		w.Log.Info("number of the node confirmed", "node", w.Node, "id", next.Spec.NodeID)
		return w.Client.NodeNetworks().Update(ctx, next, metav1.UpdateOptions{})
	}
	w.Log.Info("another node has the number, trying the next", "id", there.Spec.NodeID, "node", other)
	if next.Spec.NodeID, err = w.choose(ctx); err != nil {
		return nil, err
	}
	if _, err := w.Client.NodeNetworks().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	return nil, errYield
}

// writeStatus writes the status if it differs.
func (w *Writer) writeStatus(ctx context.Context, there *v1.NodeNetwork, content Announcement) error {
	next := there.DeepCopy()
	next.Status.Version = content.Version
	next.Status.Refused = content.Refused
	next.Status.Networks = content.Networks
	next.Status.Externals = content.Externals
	ready := metav1.Condition{
		Type:    v1.ConditionReady,
		Status:  metav1.ConditionTrue,
		Reason:  "ServesPods",
		Message: "the node serves pods",
	}
	if content.NotReady != "" {
		ready.Status = metav1.ConditionFalse
		ready.Reason = "NotServing"
		ready.Message = content.NotReady
	}
	addresses := metav1.Condition{
		Type:    v1.ConditionAddresses,
		Status:  metav1.ConditionTrue,
		Reason:  v1.ReasonInUse,
		Message: "all addresses of pods belong to blocks of this node",
	}
	if content.Taken != "" {
		addresses.Status = metav1.ConditionFalse
		addresses.Reason = v1.ReasonOverlap
		addresses.Message = content.Taken
	}
	next.Status.Conditions.Set(there.Generation, ready, addresses)
	if equality.Semantic.DeepEqual(there.Status, next.Status) {
		return nil
	}
	_, err := w.Client.NodeNetworks().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}
