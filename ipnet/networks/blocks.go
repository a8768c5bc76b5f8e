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

// SetBlocks replaces the blocks that addresses are allocated from by those of the event. The first block of a family
// holds the node's own address from then on, and is never released.
func (n *Networks) SetBlocks(ev *pod.SetBlocks, t *eventloop.Txn) {
	ev.Refused = make(map[string]string)
	ev.Draining = nil
	before := n.blocks
	n.blocks = maps.Clone(before)
	t.OnRollback(func() error { n.blocks = before; return nil })
	wanted := make(map[string]bool)
	for _, b := range ev.Blocks {
		b = ofNetwork(b)
		wanted[blockKey(b)] = true
		if err := n.open(b, t); err != nil {
			ev.Refused[blockKey(b)] = err.Error()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !wanted[name] && n.drain(name, t) {
			ev.Draining = append(ev.Draining, before[name].Block)
		}
	}
	n.claimOwn(ev, t)
	n.saveBlocks(before, t)
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
func (n *Networks) open(b netaddr.Block, t *eventloop.Txn) error {
	was, known := n.blocks[blockKey(b)]
	addresses := n.Allocator(b.Network)
	if addresses == nil {
		n.blocks[blockKey(b)] = SavedBlock{Block: b}
		return fmt.Errorf("there is no network %q with addresses yet", b.Network)
	}
	if err := addresses.AddBlock(b.Prefix, b.Withheld...); err != nil {
		return err
	}
	n.blocks[blockKey(b)] = SavedBlock{Block: b, Node: was.Node}
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
func (n *Networks) drain(name string, t *eventloop.Txn) bool {
	was := n.blocks[name]
	addresses := n.Allocator(was.Block.Network)
	prefix := was.Block.Prefix
	if addresses == nil {
		delete(n.blocks, name)
		return false
	}
	addresses.CloseBlock(prefix)
	if !was.Draining {
		t.OnRollback(func() error { return addresses.AddBlock(prefix) })
	}
	if b, there := addresses.Block(prefix); there && !b.Empty {
		n.blocks[name] = SavedBlock{Block: was.Block, Node: was.Node, Draining: true}
		return true
	}
	delete(n.blocks, name)
	for _, l := range addresses.Remembered() {
		if prefix.Contains(l.Address) {
			t.Save(LeasesBucket, l.Key(), nil)
		}
	}
	t.OnCommit(func() { addresses.RemoveBlock(prefix) })
	return false
}

// claimOwn gives the node an address of its own in each family whose pools are all shared with other nodes.
func (n *Networks) claimOwn(ev *pod.SetBlocks, t *eventloop.Txn) {
	for _, b := range ev.Blocks {
		b = ofNetwork(b)
		family := netaddr.FamilyOf(b.Prefix.Addr())
		if b.Network != "" || b.Prefix.IsSingleIP() || ev.Refused[blockKey(b)] != "" || n.NodeAddress(family).IsValid() {
			continue
		}
		own, err := n.addresses.ClaimInternal(b.Prefix, netip.Addr{})
		if err != nil {
			n.Config.Log.Warn("the node has no address of its own yet", "block", b.Prefix.String(), "err", err)
			continue
		}
		t.OnRollback(func() error { n.addresses.ReturnInternal(own); return nil })
		n.blocks[blockKey(b)] = SavedBlock{Block: b, Node: own}
		before := n.own.Load()
		n.setOwn(own)
		t.OnRollback(func() error { n.own.Store(before); return nil })
	}
}

// setOwn makes an address the node's own in its family.
func (n *Networks) setOwn(a netip.Addr) {
	own := maps.Clone(*n.own.Load())
	own[netaddr.FamilyOf(a)] = a
	n.own.Store(&own)
}

// saveBlocks saves the blocks that changed.
func (n *Networks) saveBlocks(before map[string]SavedBlock, t *eventloop.Txn) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := n.blocks[name]; !stays {
			t.Save(blocksBucket, name, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.blocks)) {
		if was, known := before[name]; !known || !reflect.DeepEqual(was, n.blocks[name]) {
			t.Save(blocksBucket, name, n.blocks[name])
		}
	}
}

// restoreBlocks takes over the blocks of an earlier run, before networks and leases.
func (n *Networks) restoreBlocks(saved []SavedBlock) {
	for _, s := range saved {
		n.blocks[blockKey(s.Block)] = s
	}
	n.blocksOf("", n.addresses)
	for _, s := range saved {
		if !s.Node.IsValid() {
			continue
		}
		if _, err := n.addresses.ClaimInternal(s.Block.Prefix, s.Node); err != nil {
			n.Config.Log.Warn("the node's own address not restored", "address", s.Node.String(), "err", err)
			continue
		}
		n.setOwn(s.Node)
	}
}

// blocksOf adds the blocks of a network to its allocator.
func (n *Networks) blocksOf(network string, addresses *ipam.Allocator) {
	for _, name := range slices.Sorted(maps.Keys(n.blocks)) {
		s := n.blocks[name]
		if s.Block.Network != network {
			continue
		}
		if err := addresses.AddBlock(s.Block.Prefix, s.Block.Withheld...); err != nil {
			n.Config.Log.Warn("block not used for addresses", "block", name, "err", err)
		}
		if s.Draining {
			addresses.CloseBlock(s.Block.Prefix)
		}
	}
}
