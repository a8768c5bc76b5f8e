package ipnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// ConnectPod gives a pod its addresses, its main interface and those that its annotations ask for; all or nothing.
func (n *Network) ConnectPod(_ context.Context, ev *pod.AddPod, t *eventloop.Txn) error {
	if ev.Repeated {
		return nil
	}
	if ev.Attachment == nil {
		return errors.New("the event has no attachment: a handler before this one makes it")
	}
	wishes, err := n.wishes(ev)
	if err != nil {
		return err
	}
	leases, err := n.lease(ev, wishes, t)
	if err != nil {
		return err
	}
	var interfaces []pod.Interface
	for i, w := range wishes {
		interfaces = append(interfaces, n.interfaceOf(w, leases[i]))
	}
	if err := unambiguous(ev, interfaces); err != nil {
		return err
	}
	ev.Attachment.Interfaces = append(interfaces, ev.Attachment.Interfaces...)
	n.handOver(ev, t)
	n.displace(ev, t)
	n.remember(ev.Attachment, t)
	n.podValues(ev.Attachment).put(t)
	return nil
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
func (n *Network) remember(a *pod.Attachment, t *eventloop.Txn) {
	before, was := n.wired[a.Key]
	n.wired[a.Key] = newConnection(a)
	t.OnRollback(func() error {
		delete(n.wired, a.Key)
		if was {
			n.wired[a.Key] = before
		}
		return nil
	})
}

// displace gives up the values of attachments whose namespace's path now leads to this pod's namespace. Their own is
// gone, or nothing else could stand there; they keep their addresses until their DEL.
func (n *Network) displace(ev *pod.AddPod, t *eventloop.Txn) {
	for _, c := range n.wired {
		if c.displaced || c.Key == ev.Key || c.Netns.Path != ev.Netns.Path || c.Netns == ev.Netns {
			continue
		}
		c.displaced = true
		t.OnRollback(func() error { c.displaced = false; return nil })
		for _, key := range n.podValues(c.Attachment).keys() {
			t.Delete(key)
		}
	}
}

// DisconnectPod takes away what wires an attachment, by its key alone. Its addresses cool down once all is committed.
// For an attachment that never was it does nothing.
func (n *Network) DisconnectPod(_ context.Context, ev *pod.DeletePod, t *eventloop.Txn) error {
	c, ok := n.wired[ev.Key]
	if !ok {
		n.release("", holderOf(ev.Key, ev.Key.IfName), t)
		return nil
	}
	for _, i := range c.Interfaces {
		n.release(i.Network, holderOf(ev.Key, i.Name), t)
	}
	delete(n.wired, ev.Key)
	t.OnRollback(func() error { n.wired[ev.Key] = c; return nil })
	n.forget(ev.Key, t)
	values := n.podValues(c.Attachment) // c is wired no more, so those that it shares are without what is its own
	shared := n.shared(c)
	shared.put(t)
	for _, key := range values.keys() {
		if !slices.Contains(shared.keys(), key) {
			t.Delete(key)
		}
	}
	return nil
}

// release gives back what a holder has on a network, once the event is durable.
func (n *Network) release(network, holder string, t *eventloop.Txn) {
	addresses := n.allocator(network)
	if addresses == nil {
		return
	}
	cooling := addresses.Released(holder)
	for _, l := range cooling {
		t.Save(leasesBucket, l.Key(), l)
	}
	if len(cooling) > 0 {
		t.OnCommit(func() { addresses.Release(holder) })
	}
}

// podValues is what wires an attachment, but for what is withheld.
func (n *Network) podValues(a *pod.Attachment) values { return n.desirable(a.Key, n.allValues(a)) }

// allValues is what wires an attachment. It follows from what is kept of it and from its networks.
func (n *Network) allValues(a *pod.Attachment) values {
	var v values
	for _, i := range a.Interfaces {
		v = append(v, n.interfaceValues(a, i)...)
	}
	v = append(v, n.routesOutside(a)...)
	v = append(v, n.deviceValues(a)...)
	if len(v) > 0 {
		v.add(wire.NamespaceKey(a.Netns.Path), wire.Namespace(a.Netns))
	}
	return v
}

// interfaceValues is what makes one interface; nothing for one that is not ours, or whose network is not known.
func (n *Network) interfaceValues(a *pod.Attachment, i pod.Interface) values {
	c := n.custom(i.Network)
	if i.Type == pod.TypeIPAM || c == nil && isCustom(i.Network) {
		return nil
	}
	l := linkOf(a, i)
	l.maxSegment = n.config.MaxSegment
	l.forwards = n.config.AllowIPForwarding
	if i.Memif != nil {
		if l.secret = n.secretOf(i.Memif.Allocation); l.secret == "" {
			return nil // never without a secret
		}
	}
	v := l.ends()
	switch {
	case c != nil:
		v = append(v, c.attach(l)...)
	case i.Network == "":
		v = append(v, n.attachToDefault(a, l)...)
	}
	if !l.isLinux() {
		return v
	}
	if c == nil || c.Network.Type == pod.L3 {
		for _, gateway := range i.Gateways {
			l.linuxNeighbour(&v, gateway)
		}
	}
	for _, r := range i.Routes {
		l.linuxRoute(&v, r.Destination, r.Gateway, netip.Addr{})
	}
	return v
}

// attachToDefault makes a link one of the network default. By the main interface a pod may send from all the addresses that
// it has there: its default route leads there.
func (n *Network) attachToDefault(a *pod.Attachment, l link) values {
	v := podsVRF.attach(l, n.pools.Load().families())
	if l.judged {
		var sources []netip.Prefix
		for _, i := range a.Interfaces {
			if i.Network == "" {
				sources = append(sources, singles(i.Addresses)...)
			}
		}
		l.onlyFrom(&v, sources...)
	}
	host := n.hostLink()
	for _, p := range l.addresses {
		family := wire.FamilyOf(p.Addr())
		if node := n.nodeAddress(family); node.IsValid() && n.poolOf(p.Addr()) == "" { // no route of the node's leads there
			host.linuxRoute(&v, single(p.Addr()), gatewayOf(family), node)
		}
	}
	return v
}

func linkOf(a *pod.Attachment, i pod.Interface) link {
	l := link{
		kind: i.Type, object: i.Object, namespace: a.Netns.Path, name: i.Name, alias: aliasOf(a.Key, i.Name),
		mac: macOf(i.Object, dataplaneEnd), peerMAC: macOf(i.Object, linuxEnd), mtu: i.MTU, addresses: i.Addresses,
		judged: i.AntiSpoof || i.Network == "" && i.Name == a.Key.IfName, memif: i.Memif,
		rxQueues: i.RxQueues, txQueues: i.TxQueues,
	}
	if mac, err := wire.ParseMAC(i.MAC); err == nil { // as the pod asked for
		l.peerMAC = mac
	}
	return l
}

// older reports whether an attachment is of an older sandbox of the pod that an event is about.
func older(ev *pod.AddPod, c *connection) bool {
	same := !ev.ID.IsZero() && c.Pod.String() == ev.ID.String()
	if c.Pod.UID != "" && ev.ID.UID != "" && c.Pod.UID != ev.ID.UID {
		same = false // made again, under the same name
	}
	return same && c.Key.ContainerID != ev.Key.ContainerID
}

// isOfEarlierPod reports whether a holder is of a pod that was made again since, under the same name, as that of the event: one
// of a StatefulSet that keeps its addresses. Its DEL comes soon.
func (n *Network) isOfEarlierPod(ev *pod.AddPod, holder string) bool {
	for _, c := range n.wired {
		again := !ev.ID.IsZero() && c.Pod.String() == ev.ID.String() && c.Pod.UID != "" && ev.ID.UID != "" && c.Pod.UID != ev.ID.UID
		if again && slices.ContainsFunc(c.Interfaces, func(i pod.Interface) bool { return holderOf(c.Key, i.Name) == holder }) {
			return true
		}
	}
	return false
}

// olderHolders are the holders, on a network, in older sandboxes of the pod: what they have may be asked for anew.
func (n *Network) olderHolders(ev *pod.AddPod, network string) []string {
	var holders []string
	for _, c := range n.wired {
		if !older(ev, c) {
			continue
		}
		for _, i := range c.Interfaces {
			if i.Network == network {
				holders = append(holders, holderOf(c.Key, i.Name))
			}
		}
	}
	return holders
}

// handOver takes from older sandboxes the addresses, and the memifs, that their pod's new one has. The attachments stay,
// and what is left of them is theirs until their DEL; that they lost something is durable, or a restart would give it back.
func (n *Network) handOver(ev *pod.AddPod, t *eventloop.Txn) {
	for _, c := range n.wired {
		if !older(ev, c) {
			continue
		}
		less, lost := without(c, ev.Attachment)
		if !lost {
			continue
		}
		n.wired[c.Key] = less
		t.Save(attachmentsBucket, c.Key.String(), less.Attachment)
		t.OnRollback(func() error { n.wired[c.Key] = c; return nil })
		ev.HandedOver = append(ev.HandedOver, less.Attachment)
		if c.displaced {
			continue
		}
		for _, key := range n.podValues(c.Attachment).keys() {
			t.Delete(key)
		}
		n.podValues(less.Attachment).put(t)
	}
}

// without is a connection without the addresses that another attachment has on the same networks.
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

// sharesAllocation reports whether a memif is on the socket of another attachment's: kubelet allocates once in a pod's
// life, so its new sandbox takes over the sockets of the old one.
func sharesAllocation(i pod.Interface, other *pod.Attachment) bool {
	return slices.ContainsFunc(other.Interfaces, func(o pod.Interface) bool {
		return o.Memif != nil && o.Memif.Allocation == i.Memif.Allocation
	})
}

// drop takes an address from an interface, and the routes of its family with it.
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

// besides are the attachments that a sandbox has beside one of them.
func (n *Network) besides(key pod.Key, netns pod.Netns) []*pod.Attachment {
	var others []*pod.Attachment
	for _, c := range n.wired {
		if !c.displaced && c.Netns == netns && c.Key != key {
			others = append(others, c.Attachment)
		}
	}
	return others
}

// leads reports whether one of the attachments has the way to a network's other addresses: a sandbox has one at most.
func leads(attachments []*pod.Attachment, network string) bool {
	return slices.ContainsFunc(attachments, func(a *pod.Attachment) bool {
		return slices.ContainsFunc(a.Interfaces, func(i pod.Interface) bool {
			return i.Type != pod.TypeIPAM && i.Type != pod.TypeMemif && i.Network == network
		})
	})
}

// about says which pod an error is about, and keeps its code.
func about(ev *pod.AddPod, err error) error {
	if coded, ok := errors.AsType[*pod.Error](err); ok {
		return pod.Errorf(coded.Code, "%s: %w", ev, err)
	}
	return fmt.Errorf("%s: %w", ev, err)
}

// refusal tells why the pod gets no address, with a code and advice.
func (n *Network) refusal(ev *pod.AddPod, w wish, err error) error {
	what := ev.String()
	if w.name != ev.Key.IfName {
		what += ": interface " + w.name
	}
	var exhausted ipam.ErrExhausted
	var inUse ipam.ErrInUse
	var outside ipam.ErrOutside
	switch {
	case errors.As(err, &exhausted) && exhausted.Cooling > 0:
		wait := exhausted.NextFree.Sub(n.config.Now()).Round(100 * time.Millisecond)
		return pod.Errorf(pod.CodeTryAgain, "%s: no address of pool %s is free, %d cooling down, the next is free in %s; try again then",
			what, exhausted.Pool, exhausted.Cooling, wait)
	case errors.As(err, &exhausted) && exhausted.NoBlock:
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, and none that it may have was given to it yet; try again", what, err)
	case errors.As(err, &exhausted) && w.custom != nil:
		return pod.Errorf(pod.CodePoolExhausted, "%s: %w, %d by this node; delete pods of network %s, or give it larger cidrs", what, err, n.heldOf(w, exhausted), w.network)
	case errors.As(err, &exhausted):
		return pod.Errorf(pod.CodePoolExhausted, "%s: %w, %d by this node; delete pods, or give the node another pool", what, err, n.heldOf(w, exhausted))
	case errors.As(err, &inUse) && n.isOfEarlierPod(ev, inUse.Holder):
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, of the earlier pod of this name, which is not unwired yet; try again", what, err)
	case errors.As(err, &inUse):
		return pod.Errorf(pod.CodeAddressInUse, "%s: address %s is held by %s; ask for another one, or for none", what, inUse.Address, n.holderName(inUse.Holder))
	case errors.As(err, &outside):
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %w; %s", what, err, n.outsideAdvice(ev, w, outside))
	}
	return pod.Errorf(pod.CodeInvalidConfig, "%s: %w", what, err)
}

// heldOf counts the addresses of exhausted pools that this node gave to pods.
func (n *Network) heldOf(w wish, e ipam.ErrExhausted) (held uint64) {
	for _, s := range n.allocator(w.network).Stats() {
		if slices.Contains(e.Pools(), s.Name) {
			held += s.Used + s.Leased
		}
	}
	return held
}

// holderName is the pod of a holder, if it has one, with the attachment.
func (n *Network) holderName(holder string) string {
	for _, c := range n.wired {
		if slices.ContainsFunc(c.Interfaces, func(i pod.Interface) bool { return holderOf(c.Key, i.Name) == holder }) {
			return c.Name() + " on this node (" + holder + ")"
		}
	}
	return holder
}

// outsideAdvice says which addresses a pod can ask for. An address that other nodes give out is in the right range.
func (n *Network) outsideAdvice(ev *pod.AddPod, w wish, e ipam.ErrOutside) string {
	if e.Elsewhere {
		return "other nodes give it out; ask for another one, or for none"
	}
	if w.custom != nil {
		return fmt.Sprintf("ask for another one of %v, or for none", w.custom.Network.CIDRs)
	}
	var prefixes []string
	for _, p := range n.pools.Load().all {
		if !p.Disabled && p.Admits(ev.ID.Namespace) {
			prefixes = append(prefixes, fmt.Sprintf("%s (pool %s)", p.Prefix, p.Name))
		}
	}
	return fmt.Sprintf("ask for another one of %s, or for none", strings.Join(prefixes, ", "))
}
