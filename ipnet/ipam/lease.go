package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// State is the state of an address that is not free.
type State string

// The states of an address.
const (
	Leased   State = "leased"   // granted to a holder, not committed
	Used     State = "used"     // committed
	Cooling  State = "cooling"  // released; free after FreeAt
	Internal State = "internal" // the node's own
	Withheld State = "withheld" // in a block of this node, allocated by other nodes
	Occupied State = "occupied" // a machine has it, or a claim holds it; only in lists, never stored
)

// String returns the state as it is stored and shown.
func (s State) String() string { return string(s) }

// Holders of addresses that are not for pods of this node.
const (
	InternalHolder = "node"  // this node itself
	OtherHolder    = "other" // another node that borrows the address or may borrow it
)

// Lease names the holder of an address, or its last holder. Leases are stored as JSON, also those of free addresses,
// because they order addresses by idle time.
type Lease struct {
	Pool    string     `json:"pool"`
	Address netip.Addr `json:"address"`
	Holder  string     `json:"holder"`
	State   State      `json:"state"`
	Since   time.Time  `json:"since"`
	FreeAt  time.Time  `json:"freeAt,omitzero"` // of a cooling address

	// Namespace is that of the pod that has the address or had it last; "" if it is not known, as of a container
	// without a pod.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"` // its name in the namespace
}

// Key returns the key under which the lease is stored.
func (l Lease) Key() string { return l.Pool + "/" + l.Address.String() }

// cooled returns the lease after its release.
func (l Lease) cooled(now, freeAt time.Time) Lease {
	l.State = Cooling
	l.Since = now
	l.FreeAt = freeAt
	return l
}

// isPods reports whether a pod has or had the address.
func (l Lease) isPods() bool { return l.State != Internal && l.State != Withheld }

// held reports whether the address may be in use.
func (l Lease) held() bool { return l.State != Cooling }

// ErrExhausted means that the pools have no free address of a family.
type ErrExhausted struct {
	Pool     string    // the pools that were tried
	Cooling  uint64    // number of cooling addresses; 0: all addresses are held
	Occupied uint64    // number of addresses that no pod has and a machine has
	NextFree time.Time // when the first cooling address is free
	NoBlock  bool      // the pools are shared by nodes, and this node has no open block of them
}

// Error names the exhausted pools and whether an address will be free soon.
func (e ErrExhausted) Error() string {
	if e.NoBlock {
		return fmt.Sprintf("pool %s: this node has no block of it", e.Pool)
	}
	if e.Cooling == 0 {
		return fmt.Sprintf("pool exhausted: all addresses of pool %s are held%s", e.Pool, e.Skipped())
	}
	return fmt.Sprintf("pool %s: no address is free, %d cool down%s, the next is free at %s",
		e.Pool, e.Cooling, e.Skipped(), e.NextFree.Format(time.RFC3339))
}

// Skipped says how many addresses no pod can have because a machine has them, in parentheses after a blank; "" if there
// are none.
func (e ErrExhausted) Skipped() string {
	if e.Occupied == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d are skipped: nodes have them, or IPAMClaims hold them)", e.Occupied)
}

// Pools returns the names of the pools that were tried.
func (e ErrExhausted) Pools() []string { return strings.Split(e.Pool, ", ") }

// ErrInUse means that the address has another holder, or its holder requests a second address.
type ErrInUse struct {
	Address netip.Addr
	Holder  string
}

// Error names the holder.
func (e ErrInUse) Error() string { return fmt.Sprintf("address %s is held by %s", e.Address, e.Holder) }

// ErrOccupied means that a machine has the address, or a claim holds it.
type ErrOccupied struct {
	Address netip.Addr
	By      string // the machine or the claim, in the words of Occupy and HoldFor
	IsClaim bool
}

// Error names the machine or the claim.
func (e ErrOccupied) Error() string { return fmt.Sprintf("address %s belongs to %s", e.Address, e.By) }

// ErrCooling means that a pod of another namespace had the address until now.
type ErrCooling struct {
	Address netip.Addr
	FreeAt  time.Time // for pods of all namespaces
}

// Error does not name the other namespace: the pod's owner may not know it.
func (e ErrCooling) Error() string {
	return fmt.Sprintf("address %s was released by a pod of another namespace and cools down until %s", e.Address,
		e.FreeAt.Format(time.RFC3339))
}

// ErrOutside means that this node cannot grant the address to pods.
type ErrOutside struct {
	Address netip.Addr
	Pool    string // the pool of the address; "" if there is none

	Elsewhere bool // not reserved, but in no open block of this node
}

// Error names the pool and the reason.
func (e ErrOutside) Error() string {
	if e.Pool == "" {
		return fmt.Sprintf("address %s is in no pool", e.Address)
	}
	if e.Elsewhere {
		return fmt.Sprintf("address %s of pool %s is in no open block of this node", e.Address, e.Pool)
	}
	return fmt.Sprintf("address %s of pool %s is reserved", e.Address, e.Pool)
}
