package networks

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// SavedBlock is the record of a block of this node.
type SavedBlock struct {
	Block    netaddr.Block `json:"block"`
	Node     netip.Addr    `json:"node,omitzero"`      // the node's own address, if it is from this block
	Draining bool          `json:"draining,omitempty"` // to be released, but still in use
}

// nodeBlocks are the blocks that this node allocates from.
type nodeBlocks struct {
	*registry
	blocks map[string]SavedBlock // by name; the event loop's own
}

// SetBlocks replaces the blocks that addresses are allocated from by those of the event. The first block of a family
// holds the node's own address from then on, and is never released.
func (nb *nodeBlocks) SetBlocks(ev *pod.SetBlocks, t *eventloop.Txn) {
	ev.Refused = make(map[string]string)
	ev.Draining = nil
	before := nb.blocks
	nb.blocks = maps.Clone(before)
	t.OnRollback(func() error { nb.blocks = before; return nil })
	wanted := make(map[string]bool)
	for _, b := range ev.Blocks {
		b = ofNetwork(b)
		wanted[blockKey(b)] = true
		if err := nb.open(b, t); err != nil {
			ev.Refused[blockKey(b)] = err.Error()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !wanted[name] && nb.drain(name, t) {
			ev.Draining = append(ev.Draining, before[name].Block)
		}
	}
	nb.claimOwn(ev, t)
	nb.saveBlocks(before, t)
}

// blockKey returns the name of a block in refusals and records.
func blockKey(b netaddr.Block) string {
	return cmp.Or(b.Network, pod.DefaultNetwork) + "/" + b.Prefix.String()
}

// ofNetwork returns a block with the name of its network as in records.
func ofNetwork(b netaddr.Block) netaddr.Block {
	b.Network = desired.NetworkOf(b.Network)
	return b
}

// open allows the allocation from a block. A block of an unknown network waits for the network.
func (nb *nodeBlocks) open(b netaddr.Block, t *eventloop.Txn) error {
	was, known := nb.blocks[blockKey(b)]
	addresses := nb.Allocator(b.Network)
	if addresses == nil {
		nb.blocks[blockKey(b)] = SavedBlock{Block: b}
		return fmt.Errorf("there is no network %q with addresses yet", b.Network)
	}
	if err := addresses.AddBlock(b.Prefix, b.Withheld...); err != nil {
		return err
	}
	nb.blocks[blockKey(b)] = SavedBlock{Block: b, Node: was.Node}
	switch {
	case !known:
		t.OnRollback(func() error { addresses.RemoveBlock(b.Prefix); return nil })
	case was.Draining:
		t.OnRollback(func() error { addresses.CloseBlock(b.Prefix); return nil })
	}
	return nil
}

// drain stops the allocation from a block, and removes a block without pods. It reports whether the block still has
// pods.
func (nb *nodeBlocks) drain(name string, t *eventloop.Txn) bool {
	was := nb.blocks[name]
	addresses := nb.Allocator(was.Block.Network)
	prefix := was.Block.Prefix
	if addresses == nil {
		delete(nb.blocks, name)
		return false
	}
	addresses.CloseBlock(prefix)
	if !was.Draining {
		t.OnRollback(func() error { return addresses.AddBlock(prefix) })
	}
	if b, there := addresses.Block(prefix); there && !b.Empty {
		nb.blocks[name] = SavedBlock{Block: was.Block, Node: was.Node, Draining: true}
		return true
	}
	delete(nb.blocks, name)
	for _, l := range addresses.Remembered() {
		if prefix.Contains(l.Address) {
			t.Save(LeasesBucket, l.Key(), nil)
		}
	}
	t.OnCommit(func() { addresses.RemoveBlock(prefix) })
	return false
}

// claimOwn gives the node an address of its own in each family whose pools are all shared with other nodes.
func (nb *nodeBlocks) claimOwn(ev *pod.SetBlocks, t *eventloop.Txn) {
	for _, b := range ev.Blocks {
		b = ofNetwork(b)
		family := netaddr.FamilyOf(b.Prefix.Addr())
		if b.Network != "" || b.Prefix.IsSingleIP() || ev.Refused[blockKey(b)] != "" || nb.NodeAddress(family).IsValid() {
			continue
		}
		own, err := nb.addresses.ClaimInternal(b.Prefix, netip.Addr{})
		if err != nil {
			nb.Config.Log.Warn("the node has no address of its own yet", "block", b.Prefix.String(), "err", err)
			continue
		}
		t.OnRollback(func() error { nb.addresses.ReturnInternal(own); return nil })
		nb.blocks[blockKey(b)] = SavedBlock{Block: b, Node: own}
		before := nb.own.Load()
		nb.setOwn(own)
		t.OnRollback(func() error { nb.own.Store(before); return nil })
	}
}

// setOwn makes an address the node's own in its family.
func (nb *nodeBlocks) setOwn(a netip.Addr) {
	own := maps.Clone(*nb.own.Load())
	own[netaddr.FamilyOf(a)] = a
	nb.own.Store(&own)
}

// saveBlocks saves the blocks that changed.
func (nb *nodeBlocks) saveBlocks(before map[string]SavedBlock, t *eventloop.Txn) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := nb.blocks[name]; !stays {
			t.Save(blocksBucket, name, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nb.blocks)) {
		if was, known := before[name]; !known || !reflect.DeepEqual(was, nb.blocks[name]) {
			t.Save(blocksBucket, name, nb.blocks[name])
		}
	}
}

// restoreBlocks takes over the blocks of an earlier run, before networks and leases.
func (nb *nodeBlocks) restoreBlocks(saved []SavedBlock) {
	for _, s := range saved {
		nb.blocks[blockKey(s.Block)] = s
	}
	nb.blocksOf("", nb.addresses)
	for _, s := range saved {
		if !s.Node.IsValid() {
			continue
		}
		if _, err := nb.addresses.ClaimInternal(s.Block.Prefix, s.Node); err != nil {
			nb.Config.Log.Warn("the node's own address not restored", "address", s.Node.String(), "err", err)
			continue
		}
		nb.setOwn(s.Node)
	}
}

// blocksOf adds the blocks of a network to its allocator.
func (nb *nodeBlocks) blocksOf(network string, addresses *ipam.Allocator) {
	for _, name := range slices.Sorted(maps.Keys(nb.blocks)) {
		s := nb.blocks[name]
		if s.Block.Network != network {
			continue
		}
		if err := addresses.AddBlock(s.Block.Prefix, s.Block.Withheld...); err != nil {
			nb.Config.Log.Warn("block not used for addresses", "block", name, "err", err)
		}
		if s.Draining {
			addresses.CloseBlock(s.Block.Prefix)
		}
	}
}
