package agent

import (
	"context"
	"slices"

	"github.com/weftnet/weft/agent/drift"
	"github.com/weftnet/weft/agent/garbage"
	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

// machine answers podmanager's questions about this node: its kernel and its dataplane.
type machine struct {
	scheduler  *kvscheduler.Scheduler
	network    *ipnet.Network
	devices    *devicemanager.Manager // nil: the node has no devices
	quarantine *recovery.Quarantine
	owners     *owners.Index
}

// Inspect identifies the network namespace at a path.
func (*machine) Inspect(_ context.Context, path string) (pod.Netns, error) {
	inode, device, err := linux.InspectNamespace(path)
	return pod.Netns{Path: path, Inode: inode, Device: device}, err
}

// LinkAlias looks for a link in a sandbox, and returns its alias.
func (*machine) LinkAlias(_ context.Context, netns pod.Netns, name string) (alias string, exists bool, err error) {
	return linux.LinkAlias(netns.Path, name)
}

// IsGone reports whether a network namespace is gone.
func (*machine) IsGone(netns pod.Netns) bool { return garbage.IsGone(netns) }

// Verify reads the objects of an attachment and returns the differences.
func (m *machine) Verify(ctx context.Context, at *pod.Attachment) ([]podmanager.Difference, error) {
	if err := m.quarantine.ReasonOf(at.Key); err != nil {
		return nil, err
	}
	keys := m.objects(at)
	refs := make([]kvscheduler.Ref, len(keys))
	for i, key := range keys {
		ref, err := kvscheduler.ParseRef(key)
		if err != nil {
			return nil, err
		}
		refs[i] = ref
	}
	found, err := m.scheduler.Verify(ctx, refs...)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, nil
	}
	var differences []podmanager.Difference
	of := m.owners.Now()
	for _, d := range found {
		differences = append(differences, drift.Differences(d, of.Of(d.Ref.String()))...)
	}
	return differences, nil
}

// objects lists the keys of all objects that an attachment needs, including its devices.
func (m *machine) objects(at *pod.Attachment) []string {
	keys := m.network.Pods.Objects(at)
	if m.devices == nil {
		return keys
	}
	for _, i := range at.Interfaces {
		if i.Memif != nil {
			keys = append(keys, m.devices.Objects(i.Memif.Allocation)...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// isBridged reports whether an interface is on one link with the others of its network.
func (m *machine) isBridged(at *pod.Attachment, i *pod.Interface) bool {
	return slices.Contains(m.network.Pods.Objects(at), wire.BridgeMemberKey(i.Object))
}
