package agent

import (
	"context"
	"slices"
	"time"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/proto/deletequeue"
)

// What one room asks of another it asks through a function that the agent hands it; these are they.

// inspect says which network namespace is at a path.
func inspect(_ context.Context, path string) (pod.Netns, error) {
	inode, device, err := linux.Inspect(path)
	return pod.Netns{Path: path, Inode: inode, Device: device}, err
}

// linkExists looks for a link in a sandbox, and for whose it is.
func linkExists(_ context.Context, netns pod.Netns, name string) (alias string, exists bool, err error) {
	return linux.LinkAlias(netns.Path, name)
}

// verify reads back what wires an attachment and finds what is not as it should be.
func (a *Agent) verify(ctx context.Context, at *pod.Attachment) ([]podmanager.Difference, error) {
	if err := a.quarantine.reasonOf(at.Key); err != nil {
		return nil, err
	}
	keys := a.objects(at)
	refs := make([]kvscheduler.Ref, len(keys))
	for i, key := range keys {
		ref, err := kvscheduler.ParseRef(key)
		if err != nil {
			return nil, err
		}
		refs[i] = ref
	}
	found, err := a.scheduler.Verify(ctx, refs...)
	if err != nil {
		return nil, err
	}
	var differences []podmanager.Difference
	for _, d := range found {
		differences = append(differences, differencesOf(d)...)
	}
	return differences, nil
}

// objects are the keys of all that an attachment needs, its devices among it.
func (a *Agent) objects(at *pod.Attachment) []string {
	keys := a.network.Objects(at)
	if a.devices == nil {
		return keys
	}
	for _, i := range at.Interfaces {
		if i.Memif != nil {
			keys = append(keys, a.devices.Objects(i.Memif.Allocation)...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// void takes a queued DEL back, because the same attachment is added again.
func (a *Agent) void(ctx context.Context, key pod.Key) error {
	return a.queue.Remove(ctx, deletequeue.Key{Network: key.Network, ContainerID: key.ContainerID, IfName: key.IfName})
}

func ipamPools(pools []config.Pool) []ipam.Pool {
	out := make([]ipam.Pool, len(pools))
	for i, p := range pools {
		out[i] = ipam.Pool{Name: p.Name, Prefix: p.Prefix, Disabled: p.Disabled, Namespaces: p.Namespaces}
	}
	return out
}

// orNone says "none" as the rooms do: there, zero is the default.
func orNone(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
