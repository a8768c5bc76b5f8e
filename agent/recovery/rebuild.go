package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

// The loss of the state file must not disconnect a pod. The dataplane still has the interfaces, and the aliases of
// their Linux ends name the attachments. The agent rebuilds the attachments from these before the first resync, and the
// networks of the configuration with their VNIs and table IDs. The new file is marked as incomplete until all is
// rebuilt; until then no object is pruned.

// Rebuilder rebuilds the lost content of a state file.
type Rebuilder struct {
	State     *statefile.File
	Dataplane *vpp.Client
	Network   *ipnet.Network
	Pods      *podmanager.Manager
	Devices   *devicemanager.Manager // nil: the node has no devices
	Networks  []pod.Network          // of the configuration
	Log       *slog.Logger
}

// Rebuild rebuilds the attachments that a state file lost. isComplete reports whether all is rebuilt: else no object
// may be pruned. It fails only if ctx ends.
func (r *Rebuilder) Rebuild(ctx context.Context) (isComplete bool, _ error) {
	if !r.State.Incomplete {
		return true, nil
	}
	there, err := r.look(ctx)
	if err != nil {
		return false, err
	}
	networks := r.recognise(there.numbers)
	attachments, unknown := r.reconstruct(there.ports)
	r.Network.Restore(ipnet.Saved{Saved: attach.Saved{Attachments: attachments, Rebuilt: true}})
	for _, f := range unknown { // last: known pods keep their addresses
		r.Network.Networks.WithholdAddresses(f.Object, f.All())
	}
	r.Pods.Restore(attachments)
	if r.Devices != nil {
		r.Devices.Restore(nil, attachments)
	}
	saved := r.rebuilt(attachments)
	for _, n := range networks {
		saved = append(saved, eventloop.Saved{Bucket: statefile.BucketNetworks, Key: n.Network.Name, Value: n})
	}
	if len(unknown) == 0 {
		saved = append(saved, eventloop.Saved{Bucket: statefile.BucketMeta, Key: statefile.KeyIncomplete})
	}
	if err := r.State.Save(ctx, saved); err != nil {
		r.Log.Error("rebuilt attachments not saved", "err", err)
		return false, ctx.Err()
	}
	if len(attachments)+len(unknown) > 0 {
		r.Log.Warn("attachments rebuilt from the machine", "attachments", len(attachments), "networks", len(networks),
			"unknown", len(unknown))
	}
	return len(unknown) == 0, nil
}

// machine reads the objects of Weft in the dataplane.
type machine struct {
	ports   []vpp.Port
	numbers networks.Numbers
}

// look retries until the dataplane answers.
func (r *Rebuilder) look(ctx context.Context) (machine, error) {
	ask := func() (m machine, err error) {
		m.ports, err = r.Dataplane.Inventory().OwnPorts(ctx)
		if err == nil {
			m.numbers.Tables, m.numbers.BridgeDomains, err = r.Dataplane.Inventory().OwnNumbers(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("interfaces of the dataplane not read, retrying", "err", err)
		}
		return m, err
	}
	return backoff.Retry(ctx, ask, backoff.WithMaxElapsedTime(0))
}

// reconstruct makes attachments for interfaces without one, and returns the interfaces for which that fails.
func (r *Rebuilder) reconstruct(ports []vpp.Port) (attachments []*pod.Attachment, unknown []attach.Found) {
	found, unknown := r.find(ports)
	attachments, refused := r.Network.Pods.Reconstruct(found, unknown)
	for _, f := range found {
		if err := refused[f.Object]; err != nil {
			unknown = append(unknown, f)
			r.leaveAlone(f, err)
		}
	}
	return attachments, unknown
}

func (r *Rebuilder) leaveAlone(f attach.Found, err error) {
	r.Log.Error("interface of an unknown attachment is left alone", "interface", f.Object, "link", f.Name,
		"netns", f.Netns.Path, "err", err)
}

// recognise rebuilds unknown networks. Attachments with interfaces on them are restored once more.
func (r *Rebuilder) recognise(numbers networks.Numbers) []networks.SavedNetwork {
	networks := r.Network.Networks.Recognise(r.Networks, numbers)
	if len(networks) == 0 {
		return nil
	}
	var again []*pod.Attachment
	for _, at := range r.Pods.Attachments() {
		again = append(again, &at)
	}
	r.Network.Restore(ipnet.Saved{Saved: attach.Saved{Attachments: again, Rebuilt: true}})
	return networks
}

// knownObjects lists the interfaces of attachments in the dataplane, without those on unknown networks.
func (r *Rebuilder) knownObjects() map[string]bool {
	known := make(map[string]bool)
	for _, at := range r.Pods.Attachments() {
		for _, key := range r.Network.Pods.Objects(&at) {
			known[key] = true
		}
	}
	return known
}

// rebuilt returns the records of attachments and of the leases of their addresses.
func (r *Rebuilder) rebuilt(attachments []*pod.Attachment) []eventloop.Saved {
	var saved []eventloop.Saved
	holders := make(map[string]bool)
	for _, at := range attachments {
		holders[at.Key.String()] = true
		for _, i := range at.Interfaces {
			holders[at.Key.String()+"/"+i.Name] = true // of an extra interface
		}
		saved = append(saved, eventloop.Saved{Bucket: statefile.BucketAttachments, Key: at.Key.String(), Value: at})
	}
	_, leases := r.Network.Networks.Addresses()
	for _, l := range leases {
		if holders[l.Holder] {
			saved = append(saved, eventloop.Saved{Bucket: statefile.BucketLeases, Key: l.Key(), Value: l})
		}
	}
	return saved
}

// find returns the interfaces of the dataplane without a known attachment; unknown are those that the machine does not
// describe completely. Interfaces of sandboxes that are gone are in neither list.
func (r *Rebuilder) find(ports []vpp.Port) (found, unknown []attach.Found) {
	mounted, err := linux.FindMounted()
	if err != nil {
		r.Log.Error("network namespaces not listed: no veth is reconstructed", "err", err)
	}
	known := r.knownObjects()
	for _, p := range ports {
		if desired.IsNodes(p.Name) || known[wire.InterfaceKey(p.Name)] || desired.IsExternal(p.Name) {
			continue // of no pod: the node's own links are always desired, external interfaces are set again
		}
		f, err := r.findPort(p, mounted)
		switch {
		case err == nil:
			found = append(found, f)
		case errors.Is(err, linux.ErrGone) && (f.Type == pod.TypeMemif || isMade(p)):
			r.Log.Info("interface of a sandbox that is gone is left to be pruned", "interface", p.Name, "link", f.Name,
				"netns", f.Netns.Path)
		default:
			unknown = append(unknown, f)
			r.leaveAlone(f, err)
		}
	}
	return found, unknown
}

// made returns the value of an interface without its queues, as the dataplane reports it and, for a veth, as it follows
// from its name.
func made(p vpp.Port) wire.Interface {
	v := p.Interface
	if v.Type == wire.TypeAFPacket {
		v.AFPacket.On = wire.VethKey(p.Name)
	}
	return v
}

// isMade reports whether an interface was created as the dataplane reports it.
func isMade(p vpp.Port) bool {
	_, _, is := p.Queues(made(p))
	return is
}

// findPort collects what dataplane and kernel report of an interface; with an error the result is incomplete.
func (r *Rebuilder) findPort(p vpp.Port, mounted linux.Mounted) (attach.Found, error) {
	f := attach.Found{Object: p.Name, Neighbours: p.Addresses, Labels: p.Labels, Policers: p.Policers}
	switch p.Interface.Type {
	case wire.TypeTap:
		return findTap(p, f)
	case wire.TypeMemif:
		return r.findMemif(p, f)
	default:
		return findVeth(p, f, mounted)
	}
}

func findTap(p vpp.Port, f attach.Found) (attach.Found, error) {
	f.Type = pod.TypeTap
	f.Netns.Path = p.Interface.Tap.Namespace
	f.Name = p.Interface.Tap.Name
	link, err := inspectInto(&f)
	if err != nil {
		return f, err
	}
	if !link.Tap {
		return f, fmt.Errorf("link %s is not a tap", f.Name)
	}
	end, err := linuxEnd(p, link)
	f.MAC = end.MAC
	f.MTU = end.MTU
	f.RxQueues = end.Queues
	f.TxQueues = end.Queues
	return f, err
}

// findVeth prefers the dataplane's report to the link, which the pod may have changed.
func findVeth(p vpp.Port, f attach.Found, mounted linux.Mounted) (attach.Found, error) {
	host := p.Interface.AFPacket.Link
	f.Type = pod.TypeVeth
	f.Name = host
	peer, err := mounted.Peer(host)
	if err != nil {
		return f, err
	}
	f.Netns.Path = peer.Path
	f.Name = peer.Name
	link, err := inspectInto(&f)
	reads, writes, isMade := p.Queues(made(p))
	switch {
	case err != nil:
		return f, err
	case !link.Veth || link.Alias != peer.Alias:
		return f, fmt.Errorf("link %s with alias %q is not the other end of %s with alias %q", f.Name, link.Alias, host,
			peer.Alias)
	case !isMade:
		return f, fmt.Errorf("the interface was not created for veth %s", host)
	}
	f.MAC = p.PeerMAC
	f.MTU = p.Interface.MTU
	f.RxQueues = writes
	f.TxQueues = reads
	if f.MAC.IsZero() {
		f.MAC = link.MAC
	}
	return f, nil
}

// inspectInto adds the properties of the Linux end of an interface.
func inspectInto(f *attach.Found) (linux.LinkState, error) {
	link, err := linux.InspectLink(f.Netns.Path, f.Name)
	if err == nil {
		f.Netns.Inode = link.Inode
		f.Netns.Device = link.Device
		f.Alias = link.Alias
		f.Addresses = link.Addresses
	}
	return link, err
}

// linuxEnd returns the properties that the tap was created with: as the dataplane reports them, else as the link has
// them. A pod may have changed its link, so the link alone is no proof.
func linuxEnd(p vpp.Port, link linux.LinkState) (wire.Tap, error) {
	as := p.Interface.Tap
	for _, mac := range []netaddr.MAC{as.MAC, link.MAC} {
		for _, mtu := range []int{as.MTU, link.MTU} {
			end := wire.Tap{Namespace: as.Namespace, Name: as.Name, MAC: mac, MTU: mtu}
			if queues, _, is := p.Queues(wire.Interface{Type: wire.TypeTap, Tap: end}); is {
				end.Queues = queues
				return end, nil
			}
		}
	}
	return wire.Tap{}, fmt.Errorf("the tap does not match the dataplane and link %s", as.Name)
}

// mostList bounds the list of a container's memifs, bytes: a container may have changed it.
const mostList = 64 << 10

// findMemif finds the attachment by the allocation of the memif's socket, and the other properties in the list of the
// container's memifs.
func (r *Rebuilder) findMemif(p vpp.Port, f attach.Found) (attach.Found, error) {
	f.Type = pod.TypeMemif
	allocation, err := r.allocationOf(p)
	if err != nil {
		return f, err
	}
	f.Netns = allocation.Netns
	inode, device, err := linux.InspectNamespace(f.Netns.Path)
	switch {
	case err != nil:
		return f, err
	case inode != f.Netns.Inode || device != f.Netns.Device:
		return f, fmt.Errorf("network namespace %s is another one by now: that of the memif is %w", f.Netns.Path,
			linux.ErrGone)
	}
	list, err := readList(attach.ListPath(allocation))
	if err != nil {
		return f, err
	}
	told, err := attach.FoundMemif(p.Name, allocation, list)
	told.Labels = f.Labels
	told.Neighbours = f.Neighbours
	told.Policers = f.Policers
	switch {
	case err != nil:
		return told, err
	case !p.MadeAs(r.Network.Pods.MemifAsMade(told)):
		return told, fmt.Errorf("the memif differs from the description in its container")
	case !p.PeerMAC.IsZero() && p.PeerMAC != told.MAC:
		return told, fmt.Errorf("the dataplane has MAC %s, the description in the container %s", p.PeerMAC, told.MAC)
	}
	return told, nil
}

// allocationOf returns the allocation of a memif's socket.
func (r *Rebuilder) allocationOf(p vpp.Port) (pod.Allocation, error) {
	if r.Devices == nil {
		return pod.Allocation{}, errors.New("the node's configuration has no devices")
	}
	id := path.Base(path.Dir(p.Socket))
	all := r.Devices.Allocations()
	at := slices.IndexFunc(all, func(o pod.Allocation) bool { return o.ID == id && o.SocketPath() == p.Socket })
	if at < 0 || !all[at].Granted {
		return pod.Allocation{}, fmt.Errorf("socket %s belongs to no allocation of a pod", p.Socket)
	}
	return all[at], nil
}

// readList reads a file in its directory; a symbolic link out of it is an error.
func readList(name string) ([]byte, error) {
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("list of memifs: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Base(name), os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would block
	if err != nil {
		return nil, fmt.Errorf("list of memifs: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("list of memifs: %s is not a regular file", name)
	}
	return io.ReadAll(io.LimitReader(f, mostList))
}
