package agent

import (
	"context"

	"github.com/cenkalti/backoff/v5"

	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/pod"
)

// A state file that was damaged, deleted or not there must not cost a pod its network. What such a file no longer knows,
// the machine does: the dataplane has the interfaces, and their Linux ends say whose they are. So the attachments are made
// anew from that, before the first resync, which then finds all of it desired; so are the networks that the configuration
// names, with their numbers. The debt stands in the new file until
// nothing is left to be made anew; until then nothing is pruned.

// rebuild pays the debt of a state file that does not know what is wired. It is an error only if ctx ends.
func (a *Agent) rebuild(ctx context.Context) error {
	if !a.state.Owes {
		a.committer.keepUnknown = false
		return nil
	}
	there, err := a.look(ctx)
	if err != nil {
		return err
	}
	networks := a.recognise(there.numbers)
	attachments, unknown := a.reconstruct(there.ports)
	a.network.Restore(ipnet.Saved{Attachments: attachments})
	for _, f := range unknown { // last: an address that a pod is known to have is that pod's
		a.network.Withhold(f)
	}
	a.pods.Restore(attachments)
	if a.devices != nil {
		a.devices.Restore(nil, attachments)
	}
	saved := a.rebuilt(attachments)
	for _, n := range networks {
		saved = append(saved, eventloop.Saved{Bucket: statefile.BucketNetworks, Key: n.Network.Name, Value: n})
	}
	if len(unknown) == 0 {
		saved = append(saved, eventloop.Saved{Bucket: statefile.BucketMeta, Key: statefile.KeyOwes})
	}
	if err := a.state.Save(ctx, saved); err != nil {
		a.log.Error("attachments that were made anew are not saved", "err", err)
		return ctx.Err()
	}
	a.committer.keepUnknown = len(unknown) > 0
	if len(attachments)+len(unknown) > 0 {
		a.log.Warn("attachments made anew from what the machine knows", "attachments", len(attachments), "networks", len(networks), "unknown", len(unknown))
	}
	return nil
}

// machine is what the dataplane knows of what is ours.
type machine struct {
	ports   []vpp.Port
	numbers ipnet.Numbers
}

// look asks until the dataplane answers.
func (a *Agent) look(ctx context.Context) (machine, error) {
	ask := func() (m machine, err error) {
		m.ports, err = a.dataplane.client.OwnPorts(ctx)
		if err == nil {
			m.numbers.Tables, m.numbers.BridgeDomains, err = a.dataplane.client.OwnNumbers(ctx)
		}
		if err != nil && ctx.Err() == nil {
			a.log.Warn("interfaces of the dataplane not read, trying again", "err", err)
		}
		return m, err
	}
	return backoff.Retry(ctx, ask, backoff.WithMaxElapsedTime(0))
}

// reconstruct makes the attachments of those interfaces that nobody knows yet; unknown are those where that failed.
func (a *Agent) reconstruct(ports []vpp.Port) (attachments []*pod.Attachment, unknown []ipnet.Found) {
	found, unknown := a.find(ports)
	attachments, refused := a.network.Reconstruct(found, unknown)
	for _, f := range found {
		if err := refused[f.Object]; err != nil {
			unknown = append(unknown, f)
			a.leaveAlone(f, err)
		}
	}
	return attachments, unknown
}

func (a *Agent) leaveAlone(f ipnet.Found, err error) {
	a.log.Error("interface of an unknown attachment is left alone", "interface", f.Object, "link", f.Name, "netns", f.Netns.Path, "err", err)
}

// recognise makes the networks anew that are not known. Attachments whose interfaces on them could not be restored, for
// want of them, are restored once more.
func (a *Agent) recognise(numbers ipnet.Numbers) []ipnet.SavedNetwork {
	networks := a.network.Recognise(a.config.Networks, numbers)
	if len(networks) == 0 {
		return nil
	}
	var again []*pod.Attachment
	for _, at := range a.pods.Attachments() {
		again = append(again, &at)
	}
	a.network.Restore(ipnet.Saved{Attachments: again})
	return networks
}

// knownObjects are the dataplane's interfaces of attachments that will be desired: not those on a network that is not known.
func (a *Agent) knownObjects() map[string]bool {
	known := make(map[string]bool)
	for _, at := range a.pods.Attachments() {
		for _, key := range a.network.Objects(&at) {
			known[key] = true
		}
	}
	return known
}

// rebuilt is what is to be kept of attachments and of the leases of their addresses.
func (a *Agent) rebuilt(attachments []*pod.Attachment) []eventloop.Saved {
	var saved []eventloop.Saved
	holders := make(map[string]bool)
	for _, at := range attachments {
		holders[at.Key.String()] = true
		for _, i := range at.Interfaces {
			holders[at.Key.String()+"/"+i.Name] = true // of an extra interface
		}
		saved = append(saved, eventloop.Saved{Bucket: statefile.BucketAttachments, Key: at.Key.String(), Value: at})
	}
	_, leases := a.network.Addresses()
	for _, l := range leases {
		if holders[l.Holder] {
			saved = append(saved, eventloop.Saved{Bucket: statefile.BucketLeases, Key: l.Key(), Value: l})
		}
	}
	return saved
}
