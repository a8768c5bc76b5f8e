package ipnet

import (
	"slices"

	"github.com/weftnet/weft/pod"
)

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
