package controller

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

var (
	fleetSeed  = flag.Uint64("fleet.seed", 0, "of TestNoVNIOfTwoNetworksInAFleet; random by default")
	fleetSteps = flag.Int("fleet.steps", 50_000, "of TestNoVNIOfTwoNetworksInAFleet")
)

// fleet is a model of a cluster: networks are created and deleted while nodes leave, return and are disconnected. It
// calls the real assignVNIs and usageOf.
type fleet struct {
	t         *testing.T
	dice      *rand.Rand
	made      int
	networks  map[string]*v1.CustomNetwork // in the API server
	ledger    vnis
	announced map[string]*v1.NodeNetwork // in the API server; a node without one has no tunnels to others
	nodes     []*fleetNode
	waited    int // reconciliations of networks that are deleted and in use
}

type fleetNode struct {
	name   string
	exists bool
	cut    bool
	seen   map[string]*v1.CustomNetwork
	pods   map[types.UID]*attached // by network
}

// attached are the pods of a network on a node.
type attached struct {
	network string
	vni     int32 // of its tunnels; 0: no tunnels
	count   int
}

// TestNoVNIOfTwoNetworksInAFleet runs random operations on 50 nodes. The seed replays a run.
func TestNoVNIOfTwoNetworksInAFleet(t *testing.T) {
	seed := *fleetSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-fleet.seed %d -fleet.steps %d", seed, *fleetSteps)
	f := &fleet{
		t:         t,
		dice:      rand.New(rand.NewPCG(seed, 0)),
		networks:  make(map[string]*v1.CustomNetwork),
		ledger:    vnis{},
		announced: make(map[string]*v1.NodeNetwork),
	}
	for i := range 50 {
		f.nodes = append(f.nodes, &fleetNode{
			name:   fmt.Sprintf("n%02d", i),
			exists: true,
			pods:   make(map[types.UID]*attached),
		})
	}
	actions := slices.Concat(
		slices.Repeat([]func(*fleetNode){f.follow}, 20), slices.Repeat([]func(*fleetNode){f.start}, 10),
		slices.Repeat([]func(*fleetNode){f.end}, 8),
		slices.Repeat([]func(*fleetNode){f.reconcile}, 4), slices.Repeat([]func(*fleetNode){f.heal}, 2),
		[]func(*fleetNode){f.make, f.remove, f.leave, f.comeBack, f.comeBack, f.cutOff},
	)
	for range *fleetSteps {
		actions[f.dice.IntN(len(actions))](f.nodes[f.dice.IntN(len(f.nodes))])
		f.check()
	}
	if f.made < 10 || f.waited == 0 {
		t.Errorf("%d networks were made, and none was deleted while pods used it", f.made)
	}
	t.Logf("%d networks were made, %d times a deleted one was in use", f.made, f.waited)
}

func (f *fleet) make(*fleetNode) {
	name := fmt.Sprint("net-", f.dice.IntN(12))
	if f.networks[name] != nil {
		return
	}
	f.made++
	n := &v1.CustomNetwork{ObjectMeta: metav1.ObjectMeta{
		Name:              name,
		UID:               types.UID(fmt.Sprint("uid-", f.made)),
		Generation:        1,
		CreationTimestamp: metav1.NewTime(time.Unix(int64(f.made), 0)),
	}}
	if f.dice.IntN(3) == 0 {
		n.Spec.VNI = new(int32(1 + f.dice.IntN(3)))
	}
	f.networks[name] = n
}

func (f *fleet) remove(*fleetNode) {
	names := slices.Sorted(maps.Keys(f.networks))
	if len(names) == 0 {
		return
	}
	n := f.networks[names[f.dice.IntN(len(names))]]
	switch {
	case len(n.Finalizers) == 0:
		delete(f.networks, n.Name)
	case n.DeletionTimestamp == nil:
		n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		n.Generation++
	}
}

// reconcile is a reconciliation by the controller.
func (f *fleet) reconcile(*fleetNode) {
	said := slices.Collect(maps.Values(f.announced))
	for _, name := range slices.Sorted(maps.Keys(f.networks)) {
		n := f.networks[name]
		switch {
		case n.DeletionTimestamp == nil:
			n.Finalizers = []string{v1.FinalizerInUse}
		case usageOf(n, said) == "":
			delete(f.networks, name)
		default:
			f.waited++
		}
	}
	f.ledger = assignVNIs(f.ledger, slices.Collect(maps.Values(f.networks)))
	for vni, uid := range f.ledger {
		for _, n := range f.networks {
			if string(n.UID) == uid && n.Spec.VNI == nil {
				n.Status.VNI = vni
			}
		}
	}
}

// follow makes a node read the networks of the API server and announce its own.
func (f *fleet) follow(n *fleetNode) {
	if n.cut || !n.exists {
		return
	}
	n.seen = make(map[string]*v1.CustomNetwork)
	for name, o := range f.networks {
		n.seen[name] = o.DeepCopy()
	}
	own := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: n.name}, Status: v1.NodeNetworkStatus{
		Version: "v1", Conditions: v1.Conditions{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}},
	}}
	for uid, a := range n.pods {
		if o := n.seen[a.network]; o == nil || o.UID != uid || n.isYounger(o) {
			a.vni = 0 // its network is deleted or younger than another one with its VNI
		}
	}
	for name, o := range n.seen {
		said := v1.Observed{Name: name, Generation: o.Generation}
		said.Closed = o.DeletionTimestamp != nil
		if n.pods[o.UID] != nil && said.Closed {
			said.Pods = []string{"a pod"}
		}
		own.Status.Networks = append(own.Status.Networks, said)
	}
	f.announced[n.name] = own
}

// isYounger reports whether an older network has the VNI of this one.
func (n *fleetNode) isYounger(o *v1.CustomNetwork) bool {
	for _, other := range n.seen {
		if vniOf(other) == vniOf(o) && other.CreationTimestamp.Time.Before(o.CreationTimestamp.Time) {
			return true
		}
	}
	return false
}

func vniOf(o *v1.CustomNetwork) int32 {
	if o.Spec.VNI != nil {
		return *o.Spec.VNI
	}
	return o.Status.VNI
}

func (f *fleet) start(n *fleetNode) {
	var names []string
	for name, o := range n.seen {
		// The controller sees a network within a second; earlier use and deletion are not simulated.
		if len(o.Finalizers) > 0 && vniOf(o) != 0 && o.DeletionTimestamp == nil && !n.isYounger(o) {
			names = append(names, name)
		}
	}
	if slices.Sort(names); len(names) == 0 || f.announced[n.name] == nil { // the other nodes do not know the node yet
		return
	}
	o := n.seen[names[f.dice.IntN(len(names))]]
	if n.pods[o.UID] == nil {
		n.pods[o.UID] = &attached{network: o.Name, vni: vniOf(o)}
	}
	n.pods[o.UID].count++
}

func (f *fleet) end(n *fleetNode) {
	uids := slices.Sorted(maps.Keys(n.pods))
	if len(uids) == 0 {
		return
	}
	uid := uids[f.dice.IntN(len(uids))]
	if n.pods[uid].count--; n.pods[uid].count == 0 {
		delete(n.pods, uid)
	}
}

// leave deletes the Node and its announcement. Its pods continue to run.
func (f *fleet) leave(n *fleetNode) {
	n.exists = false
	delete(f.announced, n.name)
}

func (f *fleet) comeBack(n *fleetNode) { n.exists = true }

func (f *fleet) cutOff(n *fleetNode) { n.cut = true }

func (f *fleet) heal(n *fleetNode) { n.cut = false }

// check fails the test if pods of two networks use one VNI on nodes with tunnels to each other.
func (f *fleet) check() {
	of := make(map[int32]types.UID)
	for _, n := range f.nodes {
		if f.announced[n.name] == nil {
			continue
		}
		for uid, a := range n.pods {
			if other := of[a.vni]; a.vni != 0 && other != "" && other != uid {
				f.t.Fatalf("two networks have VNI %d: %s and %s, on %s", a.vni, other, uid, n.name)
			}
			of[a.vni] = uid
		}
	}
}
