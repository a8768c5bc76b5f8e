package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// ErrExhausted says that no address of a family can be granted.
type ErrExhausted struct {
	Pool     string    // the pools that were tried
	Cooling  uint64    // how many of their addresses cool down; 0: all are held
	NextFree time.Time // when the first of those is free
	NoBlock  bool      // the pools are several nodes', and this one has no open block of them
}

// Error says what is exhausted and whether waiting helps.
func (e ErrExhausted) Error() string {
	if e.NoBlock {
		return fmt.Sprintf("pool %s: this node has no block of it", e.Pool)
	}
	if e.Cooling == 0 {
		return fmt.Sprintf("pool exhausted: all addresses of pool %s are held", e.Pool)
	}
	return fmt.Sprintf("pool %s: no address is free, %d cool down, the next is free at %s",
		e.Pool, e.Cooling, e.NextFree.Format(time.RFC3339))
}

// Pools are the names of the pools that were tried.
func (e ErrExhausted) Pools() []string { return strings.Split(e.Pool, ", ") }

// ErrInUse says that an address is another's, or that its own holder asks for a second one.
type ErrInUse struct {
	Address netip.Addr
	Holder  string
}

// Error names the holder.
func (e ErrInUse) Error() string { return fmt.Sprintf("address %s is held by %s", e.Address, e.Holder) }

// ErrOutside says that an address is not for pods.
type ErrOutside struct {
	Address netip.Addr
	Pool    string // the pool it is in, but reserved; "" = in none

	Elsewhere bool // not reserved, but in no block that this node gives out
}

// Error says where the address is.
func (e ErrOutside) Error() string {
	if e.Pool == "" {
		return fmt.Sprintf("address %s is in no pool", e.Address)
	}
	if e.Elsewhere {
		return fmt.Sprintf("address %s of pool %s is in no block that this node gives out", e.Address, e.Pool)
	}
	return fmt.Sprintf("address %s of pool %s is reserved", e.Address, e.Pool)
}
