package attach

import (
	"maps"
	"slices"
	"time"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// recovery takes over the attachments and leases of an earlier run.
type recovery struct {
	networks    *networks.Networks
	connections connections
}

// restoreAttachments connects the attachments of an earlier run.
func (r *recovery) restoreAttachments(attachments []*pod.Attachment) {
	for _, a := range attachments {
		r.connections[a.Key] = r.connection(a)
	}
	r.connections.displaceOlder()
}

// connection returns a connection with the interfaces on known networks.
func (r *recovery) connection(a *pod.Attachment) *connection {
	c := newConnection(a)
	c.Interfaces = slices.DeleteFunc(c.Interfaces, func(i pod.Interface) bool {
		unknown := desired.IsCustom(i.Network) && r.networks.Custom(i.Network) == nil
		if unknown {
			r.networks.Config.Log.Warn("interface of an unknown network not restored", "attachment", a.Key.String(),
				"interface", i.Name, "network", i.Network)
		}
		return unknown
	})
	return c
}

// restoreLeases restores the leases of each network: first of attachments, then without an attachment.
func (r *recovery) restoreLeases(attachments []*pod.Attachment, kept []ipam.Lease) {
	since := make(map[string]time.Time) // of kept leases, by holder and address
	for _, l := range kept {
		if l.State == ipam.Used {
			since[l.Holder+" "+l.Address.String()] = l.Since
		}
	}
	leases := make(map[string][]ipam.Lease) // by network
	for _, a := range attachments {
		for _, i := range r.connections[a.Key].Interfaces {
			leases[i.Network] = append(leases[i.Network], r.leasesOf(a, i, since)...)
		}
	}
	for _, l := range r.orphans(kept) {
		leases[desired.NetworkOfPool(l.Pool)] = append(leases[desired.NetworkOfPool(l.Pool)], l)
	}
	for _, network := range slices.Sorted(maps.Keys(leases)) {
		addresses := r.networks.Allocator(network)
		if addresses == nil {
			continue
		}
		if err := addresses.Restore(leases[network]); err != nil {
			r.networks.Config.Log.Warn("some leases not restored", "err", err)
		}
	}
}

// leasesOf returns the leases of an interface, with the time of their record or of the attachment. Addresses outside
// the pools and blocks of this node belong to another plugin.
func (r *recovery) leasesOf(a *pod.Attachment, i pod.Interface, since map[string]time.Time) []ipam.Lease {
	var leases []ipam.Lease
	holder := desired.HolderOf(a.Key, i.Name)
	for at, p := range i.Addresses {
		if at < len(i.Pools) && i.Pools[at] == "" && !r.networks.Allocator("").Allocates(p.Addr()) {
			continue
		}
		l := ipam.Lease{
			Address:   p.Addr(),
			Holder:    holder,
			Namespace: a.Pod.Namespace,
			Pod:       a.Pod.Name,
			State:     ipam.Used,
			Since:     a.Created,
		}
		if kept, ok := since[holder+" "+p.Addr().String()]; ok {
			l.Since = kept
		}
		leases = append(leases, l)
	}
	return leases
}

// orphans returns the saved leases without an attachment. A lease that was used cools down first, because neighbours
// may still send to its former holder.
func (r *recovery) orphans(kept []ipam.Lease) []ipam.Lease {
	holders := make(map[string]bool)
	for key, c := range r.connections {
		for _, i := range c.Interfaces {
			holders[desired.HolderOf(key, i.Name)] = true
		}
	}
	var orphans []ipam.Lease
	for _, l := range kept {
		switch {
		case l.State == ipam.Cooling:
			orphans = append(orphans, l)
		case !holders[l.Holder]:
			orphans = append(orphans, r.networks.Allocator("").Cooled(l))
		}
	}
	return orphans
}
