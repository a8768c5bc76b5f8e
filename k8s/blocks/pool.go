package blocks

import (
	"cmp"
	"fmt"
	"math/big"
	"net/netip"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Default prefix lengths of blocks: 64 addresses.
const (
	DefaultBits4 = 26
	DefaultBits6 = 122
)

// Sizes are the prefix lengths of a network's blocks.
type Sizes struct {
	V4 int `json:"v4"`
	V6 int `json:"v6"`
}

// SizesOf returns the block sizes of a network.
func SizesOf(n *v1.CustomNetwork) Sizes {
	return Sizes{V4: int(n.Spec.BlockSize), V6: int(n.Spec.BlockSizeV6)}
}

// Of returns the prefix length for the family of a prefix, or the default.
func (s Sizes) Of(prefix netip.Prefix) int {
	if prefix.Addr().Is4() {
		return cmp.Or(s.V4, DefaultBits4)
	}
	return cmp.Or(s.V6, DefaultBits6)
}

// BitsOf returns the prefix length of the blocks of an IPPool.
func BitsOf(p *v1.IPPool, prefix netip.Prefix) int {
	if p.Spec.BlockSize != nil {
		return int(*p.Spec.BlockSize)
	}
	return Sizes{}.Of(prefix)
}

// Pool is a prefix that is cut into blocks.
type Pool struct {
	Name    string // of the IPPool; "" for the addresses of a custom network
	Network string // the custom network; "" for an IPPool
	Prefix  netip.Prefix
	Bits    int // prefix length of its blocks

	// Closed: no block is claimed any more, and empty ones are released, because the pool is disabled or not for this node.
	Closed bool
	// OnDemand: the first block is claimed when a pod needs it, and the last one is released when it is empty.
	OnDemand bool
	// Borrowing: if no block is left nodes lend each other single addresses.
	Borrowing bool
}

// Key identifies a pool, also of a custom network.
func (p Pool) Key() string { return p.Network + "/" + p.Name + "/" + p.Prefix.String() }

// String names the pool for users.
func (p Pool) String() string {
	if p.Network == "" {
		return "pool " + p.Name
	}
	return "network " + p.Network
}

// Validate refuses a pool without blocks.
func (p Pool) Validate() error {
	width := p.Prefix.Addr().BitLen()
	switch {
	case !p.Prefix.IsValid() || p.Prefix != p.Prefix.Masked():
		return fmt.Errorf("%s: %q is no prefix, or has bits set behind its length", p, p.Prefix)
	case (p.Name == "") == (p.Network == ""):
		return fmt.Errorf("pool %q of network %q: exactly one of the names is needed", p.Name, p.Network)
	case p.Bits < p.Prefix.Bits():
		return fmt.Errorf("%s: %s is smaller than one block of length %d", p, p.Prefix, p.Bits)
	case p.Bits > width-2:
		return fmt.Errorf("%s: blocks of length %d have no address for a pod", p, p.Bits)
	}
	return nil
}

// most bounds the blocks of a pool: those beyond it are never claimed.
const most = 1 << 32

// Blocks returns the number of blocks, at most 2^32.
func (p Pool) Blocks() uint64 {
	if bits := p.Bits - p.Prefix.Bits(); bits < 32 {
		return 1 << bits
	}
	return most
}

// Block returns block number i, from 0.
func (p Pool) Block(i uint64) netip.Prefix {
	base := p.Prefix.Addr()
	offset := new(big.Int).Lsh(new(big.Int).SetUint64(i), uint(base.BitLen()-p.Bits))
	sum := offset.Add(offset, new(big.Int).SetBytes(base.AsSlice()))
	address, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, base.BitLen()/8)))
	return netip.PrefixFrom(address, p.Bits)
}

// Owns reports whether an IPBlock with this prefix names the pool and is one of its blocks.
func (p Pool) Owns(b *v1.IPBlock, prefix netip.Prefix) bool {
	return p.Name == b.Spec.Pool && p.Network == string(b.Spec.Network) && p.Has(prefix)
}

// Has reports whether a prefix is a block of the pool.
func (p Pool) Has(block netip.Prefix) bool {
	return block.Bits() == p.Bits && block == block.Masked() && p.Prefix.Contains(block.Addr())
}
