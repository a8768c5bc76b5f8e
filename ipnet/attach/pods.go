// Package attach connects pods: it resolves a request into interface specs, allocates their addresses, and makes the desired values of
// each attachment.
package attach

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// attachmentsBucket is the bucket of podmanager, which stores the attachments. Pods writes an attachment there only when it hands
// over an address.
const attachmentsBucket = "attachments"

// Pods holds the attachments of this node and makes the values that connect them. Connect, Address, Disconnect and the other
// methods that change it belong to the event loop. Objects and WithholdsOthers may be called from any goroutine.
type Pods struct {
	config    Config
	networks  *networks.Networks
	host      *mesh.Host
	externals *mesh.Externals
	wired     map[pod.Key]*connection
	acls      desired.ACLs                     // of the rules of these pods, as asked for last
	rules     atomic.Pointer[map[string]Rules] // by pod; the map never changes
	withheld  atomic.Pointer[map[pod.Key]bool] // attachments whose objects in the dataplane are not desired; the map never changes
}

// connection is an attachment with its interfaces.
type connection struct {
	*pod.Attachment      // a private copy
	displaced       bool // its namespace is gone and another stands at its path: none of its values are desired
}

// New returns no pods.
func New(c Config, networks *networks.Networks, host *mesh.Host, externals *mesh.Externals) (*Pods, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	ps := &Pods{config: c, networks: networks, host: host, externals: externals, wired: make(map[pod.Key]*connection)}
	ps.SetWithheld(nil)
	ps.rules.Store(&map[string]Rules{})
	return ps, nil
}

// Values lists the values of all attachments.
func (ps *Pods) Values() desired.Values {
	var v desired.Values
	for _, c := range ps.inOrder() {
		if !c.displaced {
			v = append(v, ps.podValues(c.Attachment)...)
		}
	}
	return append(append(v, ps.aclValues()...), ps.spliceValues()...)
}

// Objects lists the keys of the values that connect an attachment, withheld or not. Only the content of these values depends on sibling
// attachments, which belong to the event loop.
func (ps *Pods) Objects(a *pod.Attachment) []string { return ps.valuesOf(a, noSiblings).Keys() }

// Connect gives a pod its addresses, its main interface and those that its annotations ask for; all or nothing.
func (ps *Pods) Connect(ev *pod.AddPod, t *eventloop.Txn) error {
	if ev.Repeated {
		return nil
	}
	if ev.Attachment == nil {
		return errors.New("the event has no attachment: a handler before this one makes it")
	}
	rq := &request{Pods: ps, ev: ev, t: t}
	specs, err := rq.specs()
	if err != nil {
		return err
	}
	leases, err := rq.lease(specs)
	if err != nil {
		return err
	}
	var interfaces []pod.Interface
	for i, s := range specs {
		interfaces = append(interfaces, ps.interfaceOf(s, leases[i]))
	}
	if err := unambiguous(ev, interfaces); err != nil {
		return err
	}
	ev.Attachment.Interfaces = append(interfaces, ev.Attachment.Interfaces...)
	defer ps.replaceCommon(t)()
	ps.admit(ev.Attachment, t)
	ps.handOver(ev, t)
	ps.displace(ev, t)
	ps.remember(ev.Attachment, t)
	ps.podValues(ev.Attachment).Put(t)
	return nil
}

func newConnection(a *pod.Attachment) *connection {
	own := *a
	own.Interfaces = slices.Clone(a.Interfaces)
	return &connection{Attachment: &own}
}

// inOrder lists the wired attachments by key, so that what they lead to is always the same.
func (ps *Pods) inOrder() []*connection {
	return slices.SortedFunc(maps.Values(ps.wired), byKey)
}

func byKey(a, b *connection) int { return cmp.Compare(a.Key.String(), b.Key.String()) }

// shared are those values of c that other attachments need too, as they are for these: the namespace, and what their memifs
// share with its own.
func (ps *Pods) shared(c *connection) desired.Values {
	var v desired.Values
	for _, other := range ps.inOrder() {
		if other.Key == c.Key || other.displaced || other.Netns.Path != c.Netns.Path {
			continue
		}
		v.Add(wire.NamespaceKey(c.Netns.Path), wire.Namespace(other.Netns))
		v = append(v, ps.deviceValues(other.Attachment, ps.siblings)...)
	}
	return v
}

// unambiguous refuses a pod two of whose interfaces would lead to the same addresses: networks may overlap, but then a pod
// can be on one of them only.
func unambiguous(ev fmt.Stringer, interfaces []pod.Interface) error {
	taken := make(map[netip.Prefix]pod.Interface)
	for _, i := range interfaces {
		if i.Memif != nil { // its program has routes of its own
			continue
		}
		for _, p := range leadsTo(i) {
			if other, ambiguous := taken[p]; ambiguous && other.Network != i.Network {
				return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interfaces %s (network %s) and %s (network %s) both lead to %s; a pod can have one of them",
					ev, other.Name, other.Network, i.Name, i.Network, p)
			}
			taken[p] = i
		}
	}
	return nil
}

// leadsTo are the destinations of an interface's routes, those that the kernel makes included.
func leadsTo(i pod.Interface) []netip.Prefix {
	var destinations []netip.Prefix
	for _, r := range i.Routes {
		destinations = append(destinations, r.Destination)
	}
	for _, p := range i.Addresses {
		destinations = append(destinations, p.Masked())
	}
	return destinations
}

// remember makes the attachment one of the wired.
func (ps *Pods) remember(a *pod.Attachment, t *eventloop.Txn) {
	before, was := ps.wired[a.Key]
	ps.wired[a.Key] = newConnection(a)
	t.OnRollback(func() error {
		delete(ps.wired, a.Key)
		if was {
			ps.wired[a.Key] = before
		}
		return nil
	})
}

// displace deletes the values of attachments whose namespace path is that of this pod's namespace now. Their own namespace is gone; they
// keep their addresses until their DEL.
func (ps *Pods) displace(ev *pod.AddPod, t *eventloop.Txn) {
	for _, c := range ps.wired {
		if c.displaced || c.Key == ev.Key || c.Netns.Path != ev.Netns.Path || c.Netns == ev.Netns {
			continue
		}
		c.displaced = true
		t.OnRollback(func() error { c.displaced = false; return nil })
		for _, key := range ps.podValues(c.Attachment).Keys() {
			t.Delete(key)
		}
	}
}

// Disconnect deletes the values of an attachment, by its key alone. Its addresses cool down after the commit. An unknown
// attachment is no error.
func (ps *Pods) Disconnect(ev *pod.DeletePod, t *eventloop.Txn) {
	c, ok := ps.wired[ev.Key]
	if !ok {
		ps.release("", desired.HolderOf(ev.Key, ev.Key.IfName), t)
		return
	}
	for _, i := range c.Interfaces {
		ps.release(i.Network, desired.HolderOf(ev.Key, i.Name), t)
	}
	defer ps.replaceCommon(t)()
	delete(ps.wired, ev.Key)
	t.OnRollback(func() error { ps.wired[ev.Key] = c; return nil })
	ps.forget(ev.Key, t)
	values := ps.podValues(c.Attachment) // without the memifs of c in shared lists, because c is deleted from wired
	shared := ps.shared(c)
	shared.Put(t)
	for _, key := range values.Keys() {
		if !slices.Contains(shared.Keys(), key) {
			t.Delete(key)
		}
	}
	ps.dismiss(c, t)
}

// release releases the addresses of a holder on a network, after the commit.
func (ps *Pods) release(network, holder string, t *eventloop.Txn) {
	addresses := ps.networks.Allocator(network)
	if addresses == nil {
		return
	}
	cooling := addresses.Released(holder)
	for _, l := range cooling {
		t.Save(networks.LeasesBucket, l.Key(), l)
	}
	if len(cooling) > 0 {
		t.OnCommit(func() { addresses.Release(holder) })
	}
}

// older reports whether an attachment belongs to an older sandbox of the pod id than the one of key.
func older(id pod.ID, key pod.Key, c *connection) bool {
	same := !id.IsZero() && c.Pod.String() == id.String()
	if c.Pod.UID != "" && id.UID != "" && c.Pod.UID != id.UID {
		same = false // another pod with the same name
	}
	return same && c.Key.ContainerID != key.ContainerID
}

// isOfEarlierPod reports whether a holder belongs to an earlier pod with the name of the pod id, such as a pod of a StatefulSet with
// static addresses. The DEL of the earlier pod comes soon.
func (ps *Pods) isOfEarlierPod(id pod.ID, holder string) bool {
	for _, c := range ps.wired {
		again := !id.IsZero() && c.Pod.String() == id.String() && c.Pod.UID != "" && id.UID != "" && c.Pod.UID != id.UID
		if again && slices.ContainsFunc(c.Interfaces, func(i pod.Interface) bool { return desired.HolderOf(c.Key, i.Name) == holder }) {
			return true
		}
	}
	return false
}

// olderHolders lists the holders of older sandboxes of the pod on a network: the new sandbox may request their addresses.
func (rq *request) olderHolders(network string) []string {
	var holders []string
	for _, c := range rq.wired {
		if !older(rq.ev.ID, rq.ev.Key, c) {
			continue
		}
		for _, i := range c.Interfaces {
			if i.Network == network {
				holders = append(holders, desired.HolderOf(c.Key, i.Name))
			}
		}
	}
	return holders
}

// handOver removes from older sandboxes of the pod the addresses and memifs that the new sandbox has. The older attachments stay until
// their DEL. The loss is durable, or a restart would undo it.
func (ps *Pods) handOver(ev *pod.AddPod, t *eventloop.Txn) {
	for _, c := range ps.wired {
		if !older(ev.ID, ev.Key, c) {
			continue
		}
		less, lost := without(c, ev.Attachment)
		if !lost {
			continue
		}
		ps.wired[c.Key] = less
		t.Save(attachmentsBucket, c.Key.String(), less.Attachment)
		t.OnRollback(func() error { ps.wired[c.Key] = c; return nil })
		ev.HandedOver = append(ev.HandedOver, less.Attachment)
		if c.displaced {
			continue
		}
		for _, key := range ps.podValues(c.Attachment).Keys() {
			t.Delete(key)
		}
		ps.podValues(less.Attachment).Put(t)
	}
}

// without returns a connection without the addresses and memifs that another attachment has.
func without(c *connection, other *pod.Attachment) (less *connection, lost bool) {
	less = newConnection(c.Attachment)
	less.displaced = c.displaced
	before := len(less.Interfaces)
	less.Interfaces = slices.DeleteFunc(less.Interfaces, func(i pod.Interface) bool { return i.Memif != nil && sharesAllocation(i, other) })
	lost = len(less.Interfaces) < before
	for at := range less.Interfaces {
		for _, o := range other.Interfaces {
			if o.Network != less.Interfaces[at].Network {
				continue
			}
			for _, p := range o.Addresses {
				lost = drop(&less.Interfaces[at], p.Addr()) || lost
			}
		}
	}
	return less, lost
}

// sharesAllocation reports whether another attachment has a memif on the same socket. Kubelet allocates once in a pod's life, so a new
// sandbox takes over the sockets of the old one.
func sharesAllocation(i pod.Interface, other *pod.Attachment) bool {
	return slices.ContainsFunc(other.Interfaces, func(o pod.Interface) bool {
		return o.Memif != nil && o.Memif.Allocation == i.Memif.Allocation
	})
}

// drop removes an address from an interface, with the routes of its family.
func drop(i *pod.Interface, a netip.Addr) bool {
	at := addressIn(*i, a)
	if at < 0 {
		return false
	}
	i.Addresses = slices.Delete(slices.Clone(i.Addresses), at, at+1)
	if at < len(i.Pools) {
		i.Pools = slices.Delete(slices.Clone(i.Pools), at, at+1)
	}
	if at < len(i.Gateways) {
		i.Gateways = slices.Delete(slices.Clone(i.Gateways), at, at+1)
	}
	i.Routes = slices.DeleteFunc(slices.Clone(i.Routes), func(r pod.Route) bool {
		return wire.FamilyOf(r.Destination.Addr()) == wire.FamilyOf(a)
	})
	return true
}

// noSiblings takes the place of siblings where only keys matter.
func noSiblings(pod.Key, pod.Netns) []*pod.Attachment { return nil }

// siblings lists the other attachments of a sandbox.
func (ps *Pods) siblings(key pod.Key, netns pod.Netns) []*pod.Attachment {
	var others []*pod.Attachment
	for _, c := range ps.wired {
		if !c.displaced && c.Netns == netns && c.Key != key {
			others = append(others, c.Attachment)
		}
	}
	return others
}

// hasNetworkRoute reports whether an attachment has the routes to the other addresses of a network. A sandbox has one such attachment at
// most.
func hasNetworkRoute(attachments []*pod.Attachment, network string) bool {
	return slices.ContainsFunc(attachments, func(a *pod.Attachment) bool {
		return slices.ContainsFunc(a.Interfaces, func(i pod.Interface) bool {
			return i.Type != pod.TypeIPAM && i.Type != pod.TypeMemif && i.Network == network
		})
	})
}

// holderOn returns the attachment that has an address on a network; nil if there is none.
func (ps *Pods) holderOn(network string, a netip.Addr) *connection {
	network = desired.NetworkOf(network)
	for _, c := range ps.wired {
		for _, i := range c.Interfaces {
			if i.Network == network && addressIn(i, a) >= 0 {
				return c
			}
		}
	}
	return nil
}

// HolderOn names the pod of this node that has an address on a network; "" if no pod has it.
func (ps *Pods) HolderOn(network string, a netip.Addr) string {
	if c := ps.holderOn(network, a); c != nil {
		return c.Name()
	}
	return ""
}

// UsersOf describes the pods of a network and how to release it; "" if the network has no pods.
func (ps *Pods) UsersOf(network string) string {
	var first *connection
	more := -1
	for _, c := range ps.wired {
		if !slices.ContainsFunc(c.Interfaces, func(i pod.Interface) bool { return i.Network == network }) {
			continue
		}
		if more++; first == nil || c.Key.String() < first.Key.String() {
			first = c
		}
	}
	switch {
	case first == nil:
		return ""
	case more == 0:
		return fmt.Sprintf("%s (%s) is attached to it; delete it first", first.Name(), first.Key)
	}
	return fmt.Sprintf("%s (%s) and %d more are attached to it; delete them first", first.Name(), first.Key, more)
}
