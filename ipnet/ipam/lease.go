package ipam

import (
	"net/netip"
	"time"
)

// State is how an address that is not free stands.
type State string

// The states of an address.
const (
	Leased   State = "leased"   // granted to a holder that has not committed
	Used     State = "used"     // granted
	Cooling  State = "cooling"  // given back, not yet to be granted again; free once FreeAt has passed
	Internal State = "internal" // the node's own
	Withheld State = "withheld" // in a block of this node, for other nodes to give out
)

// String is the state as it is kept and shown.
func (s State) String() string { return string(s) }

// Who holds addresses that are not for pods of this node.
const (
	InternalHolder = "node"  // keeps them for itself
	OtherHolder    = "other" // nodes, to which they are lent or offered
)

// Lease says who has an address, or had it last. As JSON it is what is kept of it over restarts: those of free
// addresses too, for they say which address has been idle longest.
type Lease struct {
	Pool    string     `json:"pool"`
	Address netip.Addr `json:"address"`
	Holder  string     `json:"holder"`
	State   State      `json:"state"`
	Since   time.Time  `json:"since"`
	FreeAt  time.Time  `json:"freeAt,omitzero"` // of a cooling one
}

// Key is what a lease is kept under.
func (l Lease) Key() string { return l.Pool + "/" + l.Address.String() }

// cooled is the lease as its release leaves it.
func (l Lease) cooled(now, freeAt time.Time) Lease {
	l.State, l.Since, l.FreeAt = Cooling, now, freeAt
	return l
}

// isPods reports whether the lease is that of a pod.
func (l Lease) isPods() bool { return l.State != Internal && l.State != Withheld }

// held reports whether the address may be in use.
func (l Lease) held() bool { return l.State != Cooling }
