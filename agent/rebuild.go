package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/cenkalti/backoff/v5"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// A state file that was damaged, deleted or not there must not cost a pod its network. What such a file no longer knows,
// the machine does: the dataplane has the interfaces, and their Linux ends say whose they are. So the attachments are made
// anew from that, before the first resync, which then finds all of it desired. The debt stands in the new file until
// nothing is left to be made anew; until then nothing is pruned.

// rebuild pays the debt of a state file that does not know what is wired. It is an error only if ctx ends.
func (a *Agent) rebuild(ctx context.Context) error {
	if !a.state.owes {
		a.committer.keepUnknown = false
		return nil
	}
	ports, err := a.ownPorts(ctx)
	if err != nil {
		return err
	}
	attachments, unknown := a.reconstruct(ports)
	a.network.Restore(ipnet.Saved{Attachments: attachments})
	for _, f := range unknown { // last: an address that a pod is known to have is that pod's
		a.network.Withhold(f)
	}
	a.pods.Restore(attachments)
	saved := a.rebuilt(attachments)
	if len(unknown) == 0 {
		saved = append(saved, eventloop.Saved{Bucket: metaBucket, Key: debtKey})
	}
	if err := a.state.Save(ctx, saved); err != nil {
		a.log.Error("attachments that were made anew are not saved", "err", err)
		return ctx.Err()
	}
	a.committer.keepUnknown = len(unknown) > 0
	if len(attachments)+len(unknown) > 0 {
		a.log.Warn("attachments made anew from what the machine knows", "attachments", len(attachments), "unknown", len(unknown))
	}
	return nil
}

// ownPorts asks until the dataplane answers.
func (a *Agent) ownPorts(ctx context.Context) ([]vpp.Port, error) {
	ask := func() ([]vpp.Port, error) {
		ports, err := a.dataplane.client.OwnPorts(ctx)
		if err != nil && ctx.Err() == nil {
			a.log.Warn("interfaces of the dataplane not read, trying again", "err", err)
		}
		return ports, err
	}
	return backoff.Retry(ctx, ask, backoff.WithMaxElapsedTime(0))
}

// reconstruct makes the attachments of those interfaces that nobody knows yet; unknown are those where that failed.
func (a *Agent) reconstruct(ports []vpp.Port) (attachments []*pod.Attachment, unknown []ipnet.Found) {
	known := a.knownObjects()
	for _, p := range ports {
		if p.Interface.Type == wire.TypeTap && p.Interface.Tap.Namespace == "" || known[p.Name] {
			continue // the node's own link is desired in any case
		}
		found, err := find(p)
		var at *pod.Attachment
		if err == nil {
			at, err = a.network.Reconstruct(found)
		}
		switch {
		case err == nil:
			attachments = append(attachments, at)
		case errors.Is(err, linux.ErrGone) && p.MadeAs(p.Interface):
			a.log.Info("interface of a sandbox that is gone is left to be pruned", "interface", p.Name, "netns", found.Netns.Path)
		default:
			unknown = append(unknown, found)
			a.log.Error("interface of an unknown attachment is left alone", "interface", p.Name, "link", found.Name, "netns", found.Netns.Path, "err", err)
		}
	}
	return attachments, unknown
}

func (a *Agent) knownObjects() map[string]bool {
	known := make(map[string]bool)
	for _, at := range a.pods.Attachments() {
		for _, i := range at.Interfaces {
			known[i.Object] = true
		}
	}
	return known
}

// find collects what dataplane and kernel know of an interface; with an error, as far as it came.
func find(p vpp.Port) (ipnet.Found, error) {
	end := p.Interface.Tap
	found := ipnet.Found{Object: p.Name, Netns: pod.Netns{Path: end.Namespace}, Name: end.Name, Neighbours: p.Addresses}
	if p.Interface.Type != wire.TypeTap {
		found.Name = p.Interface.AFPacket.Link
		return found, fmt.Errorf("link %s is no tap: only those are made anew", found.Name)
	}
	link, err := linux.InspectLink(end.Namespace, end.Name)
	if err != nil {
		return found, err
	}
	found.Netns.Inode, found.Netns.Device = link.Inode, link.Device
	found.Alias, found.Addresses = link.Alias, link.Addresses
	if !link.Tap {
		return found, fmt.Errorf("link %s is no tap", end.Name)
	}
	end, err = linuxEnd(p, link)
	found.MAC, found.MTU = end.MAC, end.MTU
	return found, err
}

// linuxEnd is what the tap was made with: as the dataplane reports it, or, where that says too little, as the link is. A
// pod may have changed its link, so the link alone proves nothing.
func linuxEnd(p vpp.Port, link linux.LinkState) (wire.Tap, error) {
	as := p.Interface.Tap
	for _, mac := range []wire.MAC{as.MAC, link.MAC} {
		for _, mtu := range []int{as.MTU, link.MTU} {
			end := wire.Tap{Namespace: as.Namespace, Name: as.Name, MAC: mac, MTU: mtu}
			if p.MadeAs(wire.Interface{Type: wire.TypeTap, Tap: end}) {
				return end, nil
			}
		}
	}
	return wire.Tap{}, fmt.Errorf("the tap was not made as the dataplane and link %s say", as.Name)
}

// rebuilt is what is to be kept of attachments and of the leases of their addresses.
func (a *Agent) rebuilt(attachments []*pod.Attachment) []eventloop.Saved {
	var saved []eventloop.Saved
	holders := make(map[string]bool)
	for _, at := range attachments {
		holders[at.Key.String()] = true
		saved = append(saved, eventloop.Saved{Bucket: attachmentsBucket, Key: at.Key.String(), Value: at})
	}
	_, leases := a.network.Addresses()
	for _, l := range leases {
		if holders[l.Holder] {
			saved = append(saved, eventloop.Saved{Bucket: leasesBucket, Key: l.Key(), Value: l})
		}
	}
	return saved
}
