package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

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
