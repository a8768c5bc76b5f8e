package blockstest

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/k8s/blocks"
)

// Judge sees all addresses that nodes give out, and notes when two could give out the same.
type Judge struct {
	mu     sync.Mutex
	giver  map[given]string
	faults []string
}

type given struct {
	network string
	address netip.Addr
}

// NewJudge returns a judge without observations.
func NewJudge() *Judge { return &Judge{giver: make(map[given]string)} }

// Faults lists the observed faults.
func (j *Judge) Faults() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.faults)
}

func (j *Judge) take(node string, g given) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if other, taken := j.giver[g]; taken && other != node {
		j.faults = append(j.faults, fmt.Sprintf("%s allocates %s, which %s allocates", node, g.address, other))
	}
	j.giver[g] = node
}

func (j *Judge) leave(node string, g given) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.giver[g] == node {
		delete(j.giver, g)
	}
}

// Node allocates the addresses of one node, as ipam does: here all addresses of a block are for pods.
type Node struct {
	Name  string
	Judge *Judge
	Now   func() time.Time
	Rest  time.Duration // of an address after its release
	Lacks string        // a network that the node does not have

	mu       sync.Mutex
	known    map[key]*block
	restored map[given]time.Time // of the run before: until when they are used
}

type key struct {
	network string
	prefix  netip.Prefix
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.network, o.network), k.prefix.Addr().Compare(o.prefix.Addr()))
}

type block struct {
	closed   bool
	withheld map[netip.Addr]bool
	used     map[netip.Addr]time.Time // until when: zero is for as long as the pod lives
}

func keyOf(b netaddr.Block) key { return key{b.Network, b.Prefix} }

func (n *Node) now() time.Time {
	if n.Now == nil {
		return time.Time{}
	}
	return n.Now()
}

func all(p netip.Prefix) []netip.Addr {
	var list []netip.Addr
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		list = append(list, a)
	}
	return list
}

// Crash ends the node's run. The next one knows its pods' addresses, but of no block.
func (n *Node) Crash() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.restored = make(map[given]time.Time)
	for k, b := range n.known {
		for a, until := range n.livingLocked(b) {
			n.restored[given{k.network, a}] = until
		}
		for _, a := range all(k.prefix) {
			if _, used := b.used[a]; !used {
				n.Judge.leave(n.Name, given{k.network, a})
			}
		}
	}
	n.known = nil
}

// Add opens a block.
func (n *Node) Add(b netaddr.Block) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if b.Network != "" && b.Network == n.Lacks {
		return blocks.ErrNoNetwork
	}
	if n.known == nil {
		n.known = make(map[key]*block)
	}
	there := n.known[keyOf(b)]
	if there == nil {
		there = &block{withheld: make(map[netip.Addr]bool), used: make(map[netip.Addr]time.Time)}
		if err := n.adoptLocked(b, there); err != nil {
			return err
		}
		n.known[keyOf(b)] = there
	}
	there.closed = false
	for _, a := range b.Withheld {
		there.withheld[a] = true
	}
	for _, a := range all(b.Prefix) {
		if until, used := n.restored[given{b.Network, a}]; used {
			there.used[a] = until
			delete(n.restored, given{b.Network, a})
		}
		if !there.withheld[a] {
			n.Judge.take(n.Name, given{b.Network, a})
		}
	}
	return nil
}

// adoptLocked moves the records of single addresses into the block around them.
func (n *Node) adoptLocked(b netaddr.Block, into *block) error {
	for k, o := range n.known {
		switch {
		case k.network != b.Network || !k.prefix.Overlaps(b.Prefix):
		case !k.prefix.IsSingleIP():
			return fmt.Errorf("block %s overlaps %s", b.Prefix, k.prefix)
		default:
			maps.Copy(into.used, o.used)
			delete(n.known, k)
		}
	}
	return nil
}

// Remove closes a block and forgets it if it is empty.
func (n *Node) Remove(b netaddr.Block) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	there := n.known[keyOf(b)]
	if there == nil {
		return true
	}
	there.closed = true
	for _, until := range n.livingLocked(there) {
		if !b.Prefix.IsSingleIP() || until.IsZero() {
			return false
		}
	}
	delete(n.known, keyOf(b))
	for _, a := range all(b.Prefix) {
		n.Judge.leave(n.Name, given{b.Network, a})
	}
	return true
}

func (n *Node) livingLocked(b *block) map[netip.Addr]time.Time {
	for a, until := range b.used {
		if !until.IsZero() && !until.After(n.now()) {
			delete(b.used, a)
		}
	}
	return b.used
}

// Usage counts.
func (n *Node) Usage(b netaddr.Block) blocks.Usage {
	n.mu.Lock()
	defer n.mu.Unlock()
	there := n.known[keyOf(b)]
	if there == nil {
		return blocks.Usage{}
	}
	var u blocks.Usage
	for _, until := range n.livingLocked(there) {
		if until.IsZero() {
			u.Held++
		} else {
			u.Cooling++
		}
	}
	if !there.closed {
		u.Free = len(all(b.Prefix)) - u.Held - u.Cooling - len(there.withheld)
	}
	return u
}

// Withhold takes the wanted address out, or any free one. Its pods have no namespaces.
func (n *Node) Withhold(b netaddr.Block, wanted netip.Addr, _ string) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	there := n.known[keyOf(b)]
	if there == nil {
		return netip.Addr{}
	}
	living := n.livingLocked(there)
	for _, a := range all(b.Prefix) {
		until, used := living[a]
		if wanted.IsValid() {
			used = a != wanted || used && until.IsZero()
		}
		if !used && !there.withheld[a] {
			delete(there.used, a)
			there.withheld[a] = true
			n.Judge.leave(n.Name, given{b.Network, a})
			return a
		}
	}
	return netip.Addr{}
}

// Return puts an address back that was taken out.
func (n *Node) Return(b netaddr.Block, address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if there := n.known[keyOf(b)]; there != nil && there.withheld[address] {
		delete(there.withheld, address)
		n.Judge.take(n.Name, given{b.Network, address})
	}
}

// Lease gives a pod an address of some block; not valid: none is free.
func (n *Node) Lease() netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(n.known), key.compare) {
		b := n.known[k]
		living := n.livingLocked(b)
		for a := k.prefix.Addr(); k.prefix.Contains(a); a = a.Next() {
			if _, used := living[a]; !b.closed && !used && !b.withheld[a] {
				b.used[a] = time.Time{}
				return a
			}
		}
	}
	return netip.Addr{}
}

// LeaseThis gives a pod this address of an open block, also while it rests; false: another pod has it, or other nodes
// may.
func (n *Node) LeaseThis(network string, address netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, b := range n.known {
		until, used := b.used[address]
		if k.network != network || !k.prefix.Contains(address) || b.closed || b.withheld[address] ||
			used && until.IsZero() {
			continue
		}
		b.used[address] = time.Time{}
		return true
	}
	return false
}

// Release takes a pod's address back; it rests first.
func (n *Node) Release(address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, b := range n.known {
		if _, used := b.used[address]; used && k.prefix.Contains(address) {
			b.used[address] = n.now().Add(n.Rest)
		}
	}
}

// Pods lists the addresses that pods have.
func (n *Node) Pods() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	var pods []netip.Addr
	for _, b := range n.known {
		for a, until := range b.used {
			if until.IsZero() {
				pods = append(pods, a)
			}
		}
	}
	return pods
}
