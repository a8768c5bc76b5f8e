package attach

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// connections are the attachments that this node has connected, by key. They know which pod has an address, a MAC or a
// network.
type connections map[pod.Key]*connection

// connection is an attachment with its interfaces.
type connection struct {
	*pod.Attachment      // a private copy
	displaced       bool // another namespace has its path now: its namespace is gone and its values are not desired
}

func newConnection(a *pod.Attachment) *connection {
	own := *a
	own.Interfaces = slices.Clone(a.Interfaces)
	return &connection{Attachment: &own}
}

// put adds a connection, or replaces the connection with its key.
func (cs connections) put(c *connection, t *eventloop.Txn) {
	before, was := cs[c.Key]
	cs[c.Key] = c
	t.OnRollback(func() error {
		delete(cs, c.Key)
		if was {
			cs[c.Key] = before
		}
		return nil
	})
}

// remove removes a connection.
func (cs connections) remove(c *connection, t *eventloop.Txn) {
	delete(cs, c.Key)
	t.OnRollback(func() error { cs[c.Key] = c; return nil })
}

// inOrder lists the connections by key. The order of their values in a transaction is always the same.
func (cs connections) inOrder() []*connection {
	return slices.SortedFunc(maps.Values(cs), byKey)
}

func byKey(a, b *connection) int { return cmp.Compare(a.Key.String(), b.Key.String()) }

// siblings lists the other attachments of a sandbox.
func (cs connections) siblings(key pod.Key, netns pod.Netns) []*pod.Attachment {
	var others []*pod.Attachment
	for _, c := range cs {
		if !c.displaced && c.Netns == netns && c.Key != key {
			others = append(others, c.Attachment)
		}
	}
	return others
}

// noSiblings replaces siblings for a caller that needs only the keys of values.
func noSiblings(pod.Key, pod.Netns) []*pod.Attachment { return nil }

// othersOf lists the connections of a pod without the connection of the key.
func (cs connections) othersOf(id pod.ID, key pod.Key) []*connection {
	var others []*connection
	for _, c := range cs {
		if c.Pod.String() == id.String() && c.Key != key {
			others = append(others, c)
		}
	}
	return others
}

// hasPod reports whether a pod, "namespace/name", has a connection.
func (cs connections) hasPod(name string) bool {
	for _, c := range cs {
		if c.Pod.String() == name {
			return true
		}
	}
	return false
}

// isOlderSandbox reports whether a connection belongs to an older sandbox of the pod id than the sandbox of key.
func (c *connection) isOlderSandbox(id pod.ID, key pod.Key) bool {
	isSamePod := !id.IsZero() && c.Pod.String() == id.String()
	return isSamePod && !c.hasOtherUID(id) && c.Key.ContainerID != key.ContainerID
}

// hasOtherUID reports whether the UIDs of a connection and of the pod id are known and differ.
func (c *connection) hasOtherUID(id pod.ID) bool {
	return c.Pod.UID != "" && id.UID != "" && c.Pod.UID != id.UID
}

// hasHolder reports whether an interface of a connection is the holder of addresses with this name.
func (c *connection) hasHolder(holder string) bool {
	return slices.ContainsFunc(c.Interfaces, func(i pod.Interface) bool {
		return desired.HolderOf(c.Key, i.Name) == holder
	})
}

// isOfEarlierPod reports whether a holder belongs to an earlier pod with the name of the pod id, such as a pod of a
// StatefulSet with static addresses. The DEL of the earlier pod comes soon.
func (cs connections) isOfEarlierPod(id pod.ID, holder string) bool {
	for _, c := range cs {
		hasSameName := !id.IsZero() && c.Pod.String() == id.String()
		if hasSameName && c.hasOtherUID(id) && c.hasHolder(holder) {
			return true
		}
	}
	return false
}

// olderHolders lists the holders of older sandboxes of the pod id on a network: the sandbox of key may request their
// addresses.
func (cs connections) olderHolders(id pod.ID, key pod.Key, network string) []string {
	var holders []string
	for _, c := range cs {
		if !c.isOlderSandbox(id, key) {
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

// holderOn returns the connection that has an address on a network; nil if no connection has it.
func (cs connections) holderOn(network string, a netip.Addr) *connection {
	network = desired.NetworkOf(network)
	for _, c := range cs {
		for _, i := range c.Interfaces {
			if i.Network == network && indexOfAddress(i, a) >= 0 {
				return c
			}
		}
	}
	return nil
}

// otherHolder returns the holder of an address on a network: an interface of this node, except the interfaces of older
// sandboxes of the pod id, because the sandbox of key may take over their addresses; "" if there is no such interface.
func (cs connections) otherHolder(network string, a netip.Addr, id pod.ID, key pod.Key) string {
	_, holder := cs.otherHolderIn(network, netaddr.Single(a), id, key)
	return holder
}

// otherHolderIn is otherHolder for the addresses of a prefix, and returns the address that is held.
func (cs connections) otherHolderIn(network string, p netip.Prefix, id pod.ID, key pod.Key) (netip.Addr, string) {
	for _, c := range cs.inOrder() {
		if c.isOlderSandbox(id, key) {
			continue
		}
		for _, i := range c.Interfaces {
			if i.Network != network {
				continue
			}
			if at := slices.IndexFunc(i.Addresses, func(a netip.Prefix) bool { return p.Contains(a.Addr()) }); at >= 0 {
				return i.Addresses[at].Addr(), desired.HolderOf(c.Key, i.Name)
			}
		}
	}
	return netip.Addr{}, ""
}

// otherRouted returns the routed prefix of a network that overlaps p, with its connection; nil if there is none. Older
// sandboxes of the pod id do not count, because the sandbox of key takes over their interfaces.
func (cs connections) otherRouted(network string, p netip.Prefix, id pod.ID, key pod.Key) (netip.Prefix, *connection) {
	for _, c := range cs.inOrder() {
		if c.Key == key || c.isOlderSandbox(id, key) {
			continue
		}
		for _, i := range c.Interfaces {
			if i.Network != network {
				continue
			}
			if at := slices.IndexFunc(i.RoutedPrefixes, p.Overlaps); at >= 0 {
				return i.RoutedPrefixes[at], c
			}
		}
	}
	return netip.Prefix{}, nil
}

// indexOfAddress returns the index of an address of an interface; -1 if the interface does not have it.
func indexOfAddress(i pod.Interface, a netip.Addr) int {
	return slices.IndexFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
}

// inUse is the error of a pod id that requests an address of another holder.
func (cs connections) inUse(what string, id pod.ID, e ipam.ErrInUse) error {
	if cs.isOfEarlierPod(id, e.Holder) {
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, of an earlier pod of this name that is not deleted yet; try again",
			what, e)
	}
	return pod.Errorf(pod.CodeAddressInUse, "%s: address %s is held by %s; request another one or none", what,
		e.Address, cs.nameOfHolder(e.Holder))
}

// nameOfHolder returns the pod of a holder with its attachment, or the holder if its pod is unknown.
func (cs connections) nameOfHolder(holder string) string {
	for _, c := range cs {
		if c.hasHolder(holder) {
			return c.Name() + " on this node (" + holder + ")"
		}
	}
	return holder
}

// holderOfMAC returns the connection with an interface with this MAC; nil if there is no such connection.
func (cs connections) holderOfMAC(mac netaddr.MAC) *connection {
	for _, c := range cs {
		for _, i := range c.Interfaces {
			if i.MAC == mac {
				return c
			}
		}
	}
	return nil
}

// usersOf describes the pods of a network and how to release it; "" if the network has no pods.
func (cs connections) usersOf(network string) string {
	var first *connection
	more := -1
	for _, c := range cs {
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

// displaceOlder marks connections with a namespace that is gone: of all connections with one namespace path the latest
// has the namespace.
func (cs connections) displaceOlder() {
	latest := make(map[string]*connection)
	for _, c := range cs.inOrder() {
		if l := latest[c.Netns.Path]; l == nil || l.Created.Before(c.Created) {
			latest[c.Netns.Path] = c
		}
	}
	for _, c := range cs {
		c.displaced = latest[c.Netns.Path].Netns != c.Netns
	}
}

// hasNetworkRoute reports whether an attachment has the routes to the other addresses of a network. A sandbox has one
// such attachment at most.
func hasNetworkRoute(attachments []*pod.Attachment, network string) bool {
	return slices.ContainsFunc(attachments, func(a *pod.Attachment) bool {
		return slices.ContainsFunc(a.Interfaces, func(i pod.Interface) bool { return hasRoutesTo(i, network) })
	})
}

// hasRoutesTo reports whether the kernel of a pod has its routes to a network through an interface. On a link it needs
// none.
func hasRoutesTo(i pod.Interface, network string) bool {
	return i.Type != pod.TypeIPAM && i.Type != pod.TypeMemif && i.Network == network && len(i.Routes) > 0
}
