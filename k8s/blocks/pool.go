package blocks

import (
	"cmp"
	"fmt"
	"math/big"
	"net/netip"
	"strings"

	"k8s.io/utils/ptr"

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
	return int(ptr.Deref(p.Spec.BlockSize, int32(Sizes{}.Of(prefix))))
}

// PoolCIDR is the CIDR of an IPPool, or one of a custom network, that is cut into blocks.
type PoolCIDR struct {
	Name    string // of the IPPool; "" for the addresses of a custom network
	Network string // the custom network; "" for an IPPool
	Prefix  netip.Prefix
	Bits    int // prefix length of its blocks

	// Closed: no block is claimed any more, and empty ones are released, because the pool is disabled or not for this
	// node.
	Closed bool
	// OnDemand: the first block is claimed when a pod needs it, and the last one is released when it is empty.
	OnDemand bool
	// Borrowing: if no block is left nodes lend each other single addresses.
	Borrowing bool
}

// Key identifies a pool, also of a custom network.
func (p PoolCIDR) Key() string { return p.Network + "/" + p.Name + "/" + p.Prefix.String() }

// String names the pool for users.
func (p PoolCIDR) String() string {
	if p.Network == "" {
		return "pool " + p.Name
	}
	return "network " + p.Network
}

// Validate refuses a pool without blocks.
func (p PoolCIDR) Validate() error {
	width := p.Prefix.Addr().BitLen()
	switch {
	case !p.Prefix.IsValid() || p.Prefix != p.Prefix.Masked():
		return fmt.Errorf("%s: %q is not a prefix, or has host bits set", p, p.Prefix)
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
func (p PoolCIDR) Blocks() uint64 {
	if bits := p.Bits - p.Prefix.Bits(); bits < 32 {
		return 1 << bits
	}
	return most
}

// Block returns block number i, from 0.
func (p PoolCIDR) Block(i uint64) netip.Prefix {
	base := p.Prefix.Addr()
	offset := new(big.Int).Lsh(new(big.Int).SetUint64(i), uint(base.BitLen()-p.Bits))
	sum := offset.Add(offset, new(big.Int).SetBytes(base.AsSlice()))
	address, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, base.BitLen()/8)))
	return netip.PrefixFrom(address, p.Bits)
}

// Owns reports whether an IPBlock with this prefix names the pool and is one of its blocks.
func (p PoolCIDR) Owns(b *v1.IPBlock, prefix netip.Prefix) bool {
	return p.Name == b.Spec.Pool && p.Network == string(b.Spec.Network) && p.Has(prefix)
}

// Has reports whether a prefix is a block of the pool.
func (p PoolCIDR) Has(block netip.Prefix) bool {
	return block.Bits() == p.Bits && block == block.Masked() && p.Prefix.Contains(block.Addr())
}

// Name returns the name of the object of a block. It is unique: names of IPv4 have four labels, names of IPv6 one,
// after the label of a network.
func Name(network string, block netip.Prefix) string {
	address := block.Addr().StringExpanded()
	name := fmt.Sprintf("%s-%d", strings.ReplaceAll(address, ":", "-"), block.Bits())
	if network == "" {
		return name
	}
	return network + "." + name
}

// Parse returns the prefix of a block's object; the error names the object.
func Parse(b *v1.IPBlock) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(string(b.Spec.CIDR))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("block %s: %w", b.Name, err)
	}
	if want := Name(string(b.Spec.Network), prefix); prefix != prefix.Masked() || b.Name != want {
		return netip.Prefix{}, fmt.Errorf("block %s: its cidr is %s, whose block is named %s", b.Name, prefix, want)
	}
	return prefix, nil
}
