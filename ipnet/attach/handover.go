package attach

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
)

// attachmentsBucket is the bucket of podmanager, which stores the attachments. Weft writes an attachment there only
// when it hands over an address.
const attachmentsBucket = "attachments"

// handOver removes from older sandboxes of the pod the addresses and memifs that the new sandbox has. The older
// attachments stay until their DEL. The loss is durable, or a restart would undo it.
func (os *objects) handOver(ev *pod.AddPod, t *eventloop.Txn) {
	for _, c := range os.connections {
		if !c.isOlderSandbox(ev.ID, ev.Key) {
			continue
		}
		remaining, hasLost := c.without(ev.Attachment)
		if !hasLost {
			continue
		}
		os.connections.put(remaining, t)
		t.Save(attachmentsBucket, c.Key.String(), remaining.Attachment)
		ev.HandedOver = append(ev.HandedOver, remaining.Attachment)
		if c.displaced {
			continue
		}
		for _, key := range os.valuesOf(c.Attachment).Keys() {
			t.Delete(key)
		}
		os.valuesOf(remaining.Attachment).Put(t)
	}
}

// without returns a connection without the addresses, prefixes and memifs that another attachment has, and whether
// there are any.
func (c *connection) without(other *pod.Attachment) (remaining *connection, hasLost bool) {
	remaining = newConnection(c.Attachment)
	remaining.displaced = c.displaced
	remaining.Interfaces = slices.DeleteFunc(remaining.Interfaces, func(i pod.Interface) bool {
		return i.Memif != nil && sharesAllocation(i, other)
	})
	hasLost = len(remaining.Interfaces) < len(c.Interfaces)
	for at := range remaining.Interfaces {
		i := &remaining.Interfaces[at]
		for _, o := range other.Interfaces {
			if o.Network != i.Network {
				continue
			}
			for _, p := range o.Addresses {
				if dropAddress(i, p.Addr()) {
					hasLost = true
				}
			}
			if dropRouted(i, o.RoutedPrefixes) {
				hasLost = true
			}
		}
	}
	return remaining, hasLost
}

// sharesAllocation reports whether another attachment has a memif on the same socket. Kubelet allocates once in a pod's
// life, so a new sandbox takes over the sockets of the old one.
func sharesAllocation(i pod.Interface, other *pod.Attachment) bool {
	return slices.ContainsFunc(other.Interfaces, func(o pod.Interface) bool {
		return o.Memif != nil && o.Memif.Allocation == i.Memif.Allocation
	})
}

// dropRouted removes the prefixes behind an interface that overlap those of another one.
func dropRouted(i *pod.Interface, of []netip.Prefix) bool {
	had := len(i.RoutedPrefixes)
	i.RoutedPrefixes = slices.DeleteFunc(slices.Clone(i.RoutedPrefixes), func(p netip.Prefix) bool {
		return slices.ContainsFunc(of, p.Overlaps)
	})
	return len(i.RoutedPrefixes) < had
}

// dropAddress removes an address from an interface, with the routes of its family.
func dropAddress(i *pod.Interface, a netip.Addr) bool {
	at := indexOfAddress(*i, a)
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
		return netaddr.FamilyOf(r.Destination.Addr()) == netaddr.FamilyOf(a)
	})
	return true
}

// displace deletes the values of attachments with the namespace path that this pod's namespace has now. Their own
// namespace is gone; they keep their addresses until their DEL.
func (os *objects) displace(ev *pod.AddPod, t *eventloop.Txn) {
	for _, c := range os.connections {
		if c.displaced || c.Key == ev.Key || c.Netns.Path != ev.Netns.Path || c.Netns == ev.Netns {
			continue
		}
		c.displaced = true
		t.OnRollback(func() error { c.displaced = false; return nil })
		for _, key := range os.valuesOf(c.Attachment).Keys() {
			t.Delete(key)
		}
	}
}
