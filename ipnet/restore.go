package ipnet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

func newConnection(a *pod.Attachment) *connection {
	own := *a
	own.Interfaces = slices.Clone(a.Interfaces)
	return &connection{Attachment: &own}
}

// inOrder lists the wired attachments by key, so that what they lead to is always the same.
func (n *Network) inOrder() []*connection {
	return slices.SortedFunc(maps.Values(n.wired), func(a, b *connection) int {
		return cmp.Compare(a.Key.String(), b.Key.String())
	})
}

// sharedKeys are those values of c that another attachment needs too: the namespace, when it has several interfaces.
func (n *Network) sharedKeys(c *connection) map[string]bool {
	shared := make(map[string]bool)
	for _, other := range n.wired {
		if other.Key != c.Key && !other.displaced && other.Netns.Path == c.Netns.Path {
			shared[wire.NamespaceKey(c.Netns.Path)] = true
		}
	}
	return shared
}

// Restore takes over what an earlier run left, before the first event; the start-up resync then makes it desired. It may
// be called again, with more.
// Attachments win over leases: an address that a pod has is that pod's, whatever else is kept about it. What cannot be
// restored is logged and left out, the rest is restored.
func (n *Network) Restore(attachments []*pod.Attachment, leases []ipam.Lease) {
	since := make(map[string]time.Time) // of kept leases, by holder and address
	for _, l := range leases {
		if l.State == ipam.Used {
			since[l.Holder+l.Address.String()] = l.Since
		}
	}
	var restored []ipam.Lease
	for _, a := range attachments {
		if len(a.Interfaces) == 0 {
			n.config.Log.Warn("attachment without interfaces not restored", "attachment", a.Key.String())
			continue
		}
		n.wired[a.Key] = newConnection(a)
		restored = append(restored, leasesOf(a, since)...)
	}
	n.displaceOlder()
	restored = append(restored, n.orphans(leases)...)
	if err := n.addresses.Restore(restored); err != nil {
		n.config.Log.Warn("some leases not restored", "err", err)
	}
}

// leasesOf are the leases of an attachment's addresses, since the time that was kept, else since the attachment is.
func leasesOf(a *pod.Attachment, since map[string]time.Time) []ipam.Lease {
	var leases []ipam.Lease
	holder := holderOf(a.Key)
	for _, i := range a.Interfaces {
		for _, p := range i.Addresses {
			l := ipam.Lease{Address: p.Addr(), Holder: holder, State: ipam.Used, Since: a.Created}
			if kept, ok := since[holder+p.Addr().String()]; ok {
				l.Since = kept
			}
			leases = append(leases, l)
		}
	}
	return leases
}

// orphans are the kept leases that no attachment stands behind. One that was used cools down first: somebody may still
// remember who had it.
func (n *Network) orphans(kept []ipam.Lease) []ipam.Lease {
	holders := make(map[string]bool)
	for key := range n.wired {
		holders[holderOf(key)] = true
	}
	var orphans []ipam.Lease
	for _, l := range kept {
		switch {
		case l.State == ipam.Cooling:
			orphans = append(orphans, l)
		case !holders[l.Holder]:
			orphans = append(orphans, n.addresses.Cooled(l))
		}
	}
	return orphans
}

// displaceOlder finds, of attachments whose namespaces stood at one path, those whose namespace is gone: all but the
// latest's.
func (n *Network) displaceOlder() {
	latest := make(map[string]*connection)
	for _, c := range n.inOrder() {
		if l := latest[c.Netns.Path]; l == nil || l.Created.Before(c.Created) {
			latest[c.Netns.Path] = c
		}
	}
	for _, c := range n.wired {
		c.displaced = latest[c.Netns.Path].Netns != c.Netns
	}
}
