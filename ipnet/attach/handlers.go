package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// ConnectPod gives a pod its addresses, its main interface and the interfaces that its annotations request; all or
// nothing.
func (ps *Pods) ConnectPod(_ context.Context, ev *pod.AddPod, t *eventloop.Txn) error {
	if ev.Repeated {
		return nil
	}
	if ev.Attachment == nil {
		return errors.New("the event has no attachment: a handler before this one makes it")
	}
	resolver := ps.resolver(&ev.Request, ps.connections.siblings(ev.Key, ev.Netns))
	specs, err := resolver.specs()
	if err != nil {
		return err
	}
	interfaces, err := ps.recordsOf(resolver, specs, t)
	if err != nil {
		return err
	}
	if err := distinctDestinations(ev, interfaces); err != nil {
		return err
	}
	ev.Attachment.Interfaces = append(interfaces, ev.Attachment.Interfaces...)

	replaceCommon := ps.common.replace(t)
	ps.admit(ev.Attachment, t)
	ps.handOver(ev, t)
	ps.displace(ev, t)
	ps.connections.put(newConnection(ev.Attachment), t)
	ps.valuesOf(ev.Attachment).Put(t)
	replaceCommon()
	return nil
}

// resolver returns the resolver of a request, with the other attachments of the sandbox.
func (ps *Pods) resolver(request *pod.Request, siblings []*pod.Attachment) *resolver {
	return &resolver{
		request:     request,
		config:      ps.config,
		networks:    ps.networks,
		linkTypes:   ps.host.LinkTypes(),
		connections: ps.connections,
		mesh:        ps.mesh,
		externals:   ps.externals,
		siblings:    siblings,
	}
}

// recordsOf allocates the addresses of resolved interfaces and gives them their routes.
func (ps *Pods) recordsOf(r *resolver, specs []spec, t *eventloop.Txn) ([]pod.Interface, error) {
	leasing := &leasing{
		request:        r.request,
		t:              t,
		networks:       ps.networks,
		connections:    ps.connections,
		delegatedCIDRs: ps.config.DelegatedCIDRs,
	}
	leases, err := leasing.lease(specs)
	if err != nil {
		return nil, err
	}
	var interfaces []pod.Interface
	for i, s := range specs {
		interfaces = append(interfaces, s.record(leases[i]))
	}
	routing := &routing{
		request:    r.request,
		specs:      specs,
		interfaces: interfaces,
		siblings:   r.siblings,
		pods:       networkNamed(pod.DefaultNetwork, ps.networks),
	}
	return interfaces, routing.add()
}

// admit gives a pod its rules before its interfaces are connected. Its other attachments get them too: Policies does
// not return these rules as changed any more.
func (ps *Pods) admit(a *pod.Attachment, t *eventloop.Txn) {
	if !ps.rules.canRestrict(a.Pod) {
		return
	}
	others := ps.connections.othersOf(a.Pod, a.Key)
	slices.SortFunc(others, byKey)
	replaceOthers := ps.replace(others, t)
	ps.rules.admit(a, t)
	replaceOthers()
}

// AddressPod gives the main interface of an attachment that awaits addresses its addresses; all or nothing. On its L2
// network another plugin decides everything: prefixes, gateways and routes are the ones of that plugin.
func (ps *Pods) AddressPod(_ context.Context, ev *pod.AddressPod, t *eventloop.Txn) error {
	if ev.Repeated {
		return nil
	}
	c := ps.connections[ev.Key]
	main := -1
	if ev.Attachment != nil {
		main = ev.Main()
	}
	if c == nil || c.displaced || main < 0 {
		return fmt.Errorf("%s: there is no interface that awaits addresses", ev)
	}
	if err := checkDelegated(ev, &ev.Requested); err != nil {
		return err
	}
	if err := ps.checkUnused(ev, &ev.Attachment.Interfaces[main]); err != nil {
		return err
	}
	setForeignAddresses(&ev.Attachment.Interfaces[main], &ev.Requested)
	if err := distinctDestinations(ev, ev.Attachment.Interfaces); err != nil {
		return err
	}

	replaceCommon := ps.common.replace(t)
	before := ps.valuesOf(c.Attachment)
	ps.admit(ev.Attachment, t)
	ps.connections.put(newConnection(ev.Attachment), t)
	desired.Replace(t, before, ps.valuesOf(ev.Attachment))
	replaceCommon()
	return nil
}

// checkUnused rejects the addresses that an annotation on such a network cannot request either: an address of another
// interface on this node, and the address of a subnet. The DHCP server may be any pod of the network.
func (ps *Pods) checkUnused(ev *pod.AddressPod, i *pod.Interface) error {
	for _, p := range ev.Requested.Delegated {
		if namesSubnet(p) {
			return pod.Errorf(pod.CodeInvalidConfig, "%s: the IPAM plugin returned %s, which cannot be a pod's address", ev,
				p)
		}
		if holder := ps.connections.otherHolder(i.Network, p.Addr(), ev.Attachment.Pod, ev.Key); holder != "" {
			inUse := ipam.ErrInUse{Address: p.Addr(), Holder: holder}
			return ps.connections.inUse(ev.String(), ev.Attachment.Pod, inUse)
		}
	}
	return nil
}

// DisconnectPod deletes the values of an attachment, by its key alone. Its addresses cool down after the commit. An
// unknown attachment is no error.
func (ps *Pods) DisconnectPod(_ context.Context, ev *pod.DeletePod, t *eventloop.Txn) error {
	c, ok := ps.connections[ev.Key]
	if !ok {
		release(ps.networks.Allocator(""), desired.HolderOf(ev.Key, ev.Key.IfName), t)
		return nil
	}
	for _, i := range c.Interfaces {
		release(ps.networks.Allocator(i.Network), desired.HolderOf(ev.Key, i.Name), t)
	}
	replaceCommon := ps.common.replace(t)
	ps.connections.remove(c, t)
	ps.withheld.remove(ev.Key, t)
	values := ps.valuesOf(c.Attachment) // without the memifs of c in shared lists, because c is no longer connected
	shared := ps.shared(c)
	shared.Put(t)
	for _, key := range values.Keys() {
		if !slices.Contains(shared.Keys(), key) {
			t.Delete(key)
		}
	}
	ps.rules.forget(c.Attachment, t)
	replaceCommon()
	return nil
}

// ChangePolicies applies the current rules of all pods.
type ChangePolicies struct {
	pod.Partial

	Pods int // set by the handler: the pods with other rules
}

// String returns the name of the event in logs and records.
func (e *ChangePolicies) String() string { return "change policies" }

// Key makes a newer event replace a queued one.
func (e *ChangePolicies) Key() string { return "policies" }

// ChangePolicies applies the rules that changed.
func (ps *Pods) ChangePolicies(_ context.Context, ev *ChangePolicies, t *eventloop.Txn) error {
	if ps.rules.policies == nil {
		return nil
	}
	changed := ps.rules.changed()
	ev.Pods = len(changed)
	var affected []*connection
	for _, c := range ps.connections.inOrder() {
		if _, is := changed[c.Pod.String()]; is {
			affected = append(affected, c)
		}
	}
	replaceCommon := ps.common.replace(t)
	replace := ps.replace(affected, t)
	ps.rules.set(changed, t)
	replace()
	replaceCommon()
	return nil
}
