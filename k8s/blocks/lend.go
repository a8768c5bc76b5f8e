package blocks

import (
	"context"
	"net/netip"
	"slices"
	"time"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// offers is how many addresses of a pool a node has on offer: enough that a node in need finds one at its first or
// second neighbour, few enough that the owner does not miss them.
const offers = 8

// lend offers addresses of this node to nodes for which no block is left, and to nodes that requested them, or takes back
// what no node borrowed. An address on offer is withheld here before a node can see the offer, and until it is certain
// that no node can take it.
func (k *Keeper) lend(ctx context.Context, p Pool) error {
	l := k.levelOf(p)
	for i, h := range l.blocks {
		wanted := 0
		if p.Borrowing && !p.Closed && i == 0 && k.config.Keep != nil {
			wanted = min(offers, len(h.Withheld)+max(0, l.free()-k.marks().Low))
		}
		if err := k.offer(ctx, h, wanted); err != nil {
			return err
		}
	}
	return nil
}

// offer brings the number of the block's addresses that others borrow, or may, to wanted; never below those borrowed or
// requested.
func (k *Keeper) offer(ctx context.Context, h *held, wanted int) error {
	requests := k.openRequests(h)
	for len(h.Withheld) < wanted {
		address := k.config.Local.Withhold(h.Block, netip.Addr{})
		if !address.IsValid() {
			break
		}
		h.Withheld = append(h.Withheld, address)
	}
	keep := slices.Clone(h.Withheld)
	for _, address := range h.Withheld {
		r := requestOf(h.object, address)
		own := r != nil && string(r.Node) == k.config.Node
		if (len(keep) > wanted || own) && !isBorrowed(h.object, address) && !slices.ContainsFunc(requests, isOf(address)) {
			keep = slices.DeleteFunc(keep, func(a netip.Addr) bool { return a == address })
		}
	}
	if same(addresses(h.object.Spec.Offered), keep) && same(h.Withheld, keep) && len(requests) == len(h.object.Spec.Requested) {
		return nil
	}
	// Also written where nothing would change, but more is withheld: an offer that nobody answered may be under way.
	if err := k.keep(); err != nil {
		return err
	}
	b := h.object.DeepCopy()
	b.Spec.Offered, b.Spec.Requested = texts(keep), requests
	if err := k.write(ctx, h, b); err != nil {
		return err // it is open whether others see the offer: the next look writes it again
	}
	if !same(addresses(h.object.Spec.Offered), keep) {
		k.Poke()
		return nil // another node wrote meanwhile: the next step writes again
	}
	for _, address := range h.Withheld {
		if !slices.Contains(keep, address) {
			k.config.Local.Return(h.Block, address)
		}
	}
	h.Withheld = keep
	return nil
}

// openRequests returns the requests for single addresses of the block that stay in its object: those for addresses that this node
// withholds, or withholds from now on. An address that a pod of this node has is refused, by removing the request. So is a
// request that its node did not follow up, and one of this node for an address that no node borrows any more.
func (k *Keeper) openRequests(h *held) []v1.AddressRequest {
	var open []v1.AddressRequest
	since := make(map[v1.AddressRequest]time.Time)
	for _, r := range h.object.Spec.Requested {
		address, err := netip.ParseAddr(string(r.Address))
		first, known := h.requested[r]
		if !known {
			first = k.config.Now()
		}
		since[r] = first
		own := string(r.Node) == k.config.Node && !isBorrowed(h.object, address)
		if err == nil && !own && k.config.Now().Sub(first) < requestTime && k.reserve(h, address) {
			open = append(open, r)
		}
	}
	h.requested = since
	return open
}

// reserve withholds an address for another node; false: a pod of this node has it, or the block offers as many as it can.
func (k *Keeper) reserve(h *held, address netip.Addr) bool {
	if slices.Contains(h.Withheld, address) {
		return true
	}
	if k.config.Keep == nil || len(h.Withheld) >= mostOffered || !h.Prefix.Contains(address) || !k.config.Local.Withhold(h.Block, address).IsValid() {
		return false
	}
	h.Withheld = append(h.Withheld, address)
	return true
}

func isOf(address netip.Addr) func(v1.AddressRequest) bool {
	return func(r v1.AddressRequest) bool { return string(r.Address) == address.String() }
}

func isBorrowed(b *v1.IPBlock, address netip.Addr) bool {
	return slices.ContainsFunc(b.Spec.Borrowed, func(l v1.Loan) bool { return string(l.Address) == address.String() })
}

// addresses reads what the API server has checked; invalid entries are skipped.
func addresses(list []v1.IP) []netip.Addr {
	var read []netip.Addr
	for _, text := range list {
		if a, err := netip.ParseAddr(string(text)); err == nil {
			read = append(read, a)
		}
	}
	return read
}

func texts(list []netip.Addr) []v1.IP {
	var written []v1.IP
	for _, a := range list {
		written = append(written, v1.IP(a.String()))
	}
	return written
}

func same(x, y []netip.Addr) bool {
	x, y = slices.Clone(x), slices.Clone(y)
	slices.SortFunc(x, netip.Addr.Compare)
	slices.SortFunc(y, netip.Addr.Compare)
	return slices.Equal(x, y)
}
