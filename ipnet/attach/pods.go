// Package attach connects pods: it resolves a request into interface specs, allocates their addresses, and makes the
// desired values of each attachment.
//
//	pod.Request --resolver--> specs --leasing--> addresses --spec.record--> pod.Attachment --connectivity--> objects
//
// [Pods.ConnectPod] takes these steps in this order. The objects of each kind of interface are listed in interfaces.go.
package attach

import (
	"net/netip"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Pods holds the attachments of this node and makes the values that connect them. Its handlers and the other methods
// that change it belong to the event loop. Objects, Owners, Lists, MovingOf and WithholdsOthers may be called from any
// goroutine.
type Pods struct {
	objects
	config    Config
	networks  *networks.Networks
	host      *mesh.Host
	mesh      *mesh.Mesh
	externals *mesh.Externals
	rules     *podRules
}

// Node is the node without its pods.
type Node struct {
	Networks  *networks.Networks
	Host      *mesh.Host
	Mesh      *mesh.Mesh
	Externals *mesh.Externals
}

// New returns no pods.
func New(c Config, n Node) (*Pods, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	ps := &Pods{
		objects:   objects{connections: make(connections)},
		config:    c,
		networks:  n.Networks,
		host:      n.Host,
		mesh:      n.Mesh,
		externals: n.Externals,
	}
	ps.rules = newPodRules(c.Policies, n.Networks, ps.connections)
	ps.connectivity = &connectivity{
		networks:  n.Networks,
		host:      n.Host,
		externals: n.Externals,
		rules:     ps.rules,
		secret:    c.Secret,
		forwards:  c.AllowIPForwarding,
	}
	ps.common = &commonObjects{connections: ps.connections, connectivity: ps.connectivity}
	ps.SetWithheld(nil)
	return ps, nil
}

// SetWithheld sets the attachments with objects that the dataplane must not get. It is called before the loop runs;
// Withhold changes them later.
func (ps *Pods) SetWithheld(keys []pod.Key) { ps.withheld.set(keys) }

// WithholdsOthers reports whether the withheld attachments differ from these.
func (ps *Pods) WithholdsOthers(keys []pod.Key) bool { return !ps.withheld.equals(keys) }

// Withhold withholds the objects of these attachments from the dataplane, and desires the objects of all others.
func (ps *Pods) Withhold(keys []pod.Key, t *eventloop.Txn) { ps.withheld.replace(keys, t) }

// MovingOf returns the addresses and virtual routers that an interface of a pod may use, and other interfaces too. It
// may be called from any goroutine.
func (ps *Pods) MovingOf(id pod.ID, i pod.Interface) pod.Moving {
	return movingOf(i, id, networkNamed(i.Network, ps.networks))
}

// HolderOn names the pod of this node that has an address on a network; "" if no pod has it.
func (ps *Pods) HolderOn(network string, a netip.Addr) string {
	if c := ps.connections.holderOn(network, a); c != nil {
		return c.Name()
	}
	return ""
}

// RoutedTo names the pod of this node with a prefix behind it that overlaps p; "" if there is none.
func (ps *Pods) RoutedTo(network string, p netip.Prefix) string {
	if _, c := ps.connections.otherRouted(desired.NetworkOf(network), p, pod.ID{}, pod.Key{}); c != nil {
		return c.Name()
	}
	return ""
}

// UsersOf describes the pods of a network and how to release it; "" if the network has no pods.
func (ps *Pods) UsersOf(network string) string { return ps.connections.usersOf(network) }

// Lists returns the rules of a pod as applied last. It may be called from any goroutine; the caller must not change
// them.
func (ps *Pods) Lists(id pod.ID) Rules { return ps.rules.of(id) }

// MemifAsMade returns the properties that the dataplane created a memif with and cannot change.
func (ps *Pods) MemifAsMade(f Found) wire.Interface {
	secret := ps.connectivity.secretOf(f.Memif.Allocation)
	return wire.Interface{Type: wire.TypeMemif, Memif: desired.MemifOf(f.Memif, secret)}
}

// Saved is the state of the pods in the state file of an earlier run.
type Saved struct {
	Attachments []*pod.Attachment
	Leases      []ipam.Lease
	Rules       []SavedRules
	Lists       []SavedList
	// Rebuilt reports whether the attachments were found on the machine, after the loss of the state file with the
	// rules.
	Rebuilt bool
}

// Restore takes over the state of an earlier run. It may be called again, with more.
func (ps *Pods) Restore(s Saved) {
	r := &recovery{networks: ps.networks, connections: ps.connections}
	ps.rules.restore(s.Rules, s.Lists)
	r.restoreAttachments(s.Attachments)
	ps.rules.admitRestored(s.Attachments)
	r.restoreLeases(s.Attachments, s.Leases)
	if s.Rebuilt {
		ps.rules.closeUnknown()
	}
}

// Reconstruct returns attachments for interfaces without a record, or adds missing interfaces to known attachments. The
// machine does not know the name of a pod without memifs, its annotations, the time of its ADD (now), and the order of
// its extra interfaces (now by name). Restore adopts the attachments. Reconstruct refuses, by object, an ambiguous
// interface, and extra interfaces with a main interface that is lost or refused.
func (ps *Pods) Reconstruct(found []Found, lost []Found) ([]*pod.Attachment, map[string]error) {
	r := &reconstruction{
		networks:      ps.networks,
		connections:   ps.connections,
		defaultRoutes: !ps.config.NoDefaultRoutes,
	}
	return r.attachments(found, lost)
}
