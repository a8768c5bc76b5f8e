package blocks

import (
	"context"
	"net/netip"
	"slices"
	"time"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// offers is the number of addresses of a pool that a node offers: enough for a node that asks one or two others, and
// few enough for the owner.
const offers = 8

// lender lends addresses of this node's blocks to other nodes.
type lender struct {
	*ownership
	poke func() // triggers a step soon
}

// lend offers addresses of this node to nodes that get no block, and to nodes that requested them, or takes back those
// that no node borrowed. An offered address is withheld here before a node can see the offer, and until no node can
// borrow it. Own is the level of the node's blocks, low its water mark.
func (l *lender) lend(ctx context.Context, p PoolCIDR, own level, low int) error {
	for i, h := range own.blocks {
		wanted := 0
		if p.Borrowing && !p.Closed && i == 0 && l.config.Keep != nil {
			wanted = min(offers, len(h.Withheld)+max(0, own.free()-low))
		}
		if err := l.offer(ctx, h, wanted); err != nil {
			return err
		}
	}
	return nil
}

// offer brings the number of the block's offered addresses to wanted, but not below those borrowed or requested.
func (l *lender) offer(ctx context.Context, h *held, wanted int) error {
	requests := l.openRequests(h)
	for len(h.Withheld) < wanted {
		address := l.config.Local.Withhold(h.Block, netip.Addr{}, "")
		if !address.IsValid() {
			break
		}
		h.Withheld = append(h.Withheld, address)
	}
	keep := slices.Clone(h.Withheld)
	for _, address := range h.Withheld {
		r := requestOf(h.object, address)
		own := r != nil && string(r.Node) == l.config.Node
		if (len(keep) > wanted || own) && loanOf(h.object, address) == nil &&
			!slices.ContainsFunc(requests, isOf(address)) {
			keep = slices.DeleteFunc(keep, func(a netip.Addr) bool { return a == address })
		}
	}
	if same(v1.Addresses(h.object.Spec.Offered), keep) && same(h.Withheld, keep) &&
		len(requests) == len(h.object.Spec.Requested) {
		return nil
	}
	// If more is withheld it is written again although it may be equal: an earlier offer may be written without an
	// answer.
	if err := l.keep(); err != nil {
		return err
	}
	b := h.object.DeepCopy()
	b.Spec.Offered = texts(keep)
	b.Spec.Requested = requests
	if err := l.write(ctx, h, b); err != nil {
		return err // other nodes may see the offer: the next step writes it again
	}
	if !same(v1.Addresses(h.object.Spec.Offered), keep) {
		l.poke()
		return nil // another node wrote meanwhile: the next step writes again
	}
	for _, address := range h.Withheld {
		if !slices.Contains(keep, address) {
			l.config.Local.Return(h.Block, address)
		}
	}
	h.Withheld = keep
	return nil
}

// openRequests returns the requests that stay in the block's object: requests for addresses that this node withholds,
// or withholds from now on. It removes a request to refuse an address that a pod of this node has. It also removes
// expired requests, and this node's requests for addresses that no node borrows any more.
func (l *lender) openRequests(h *held) []v1.AddressRequest {
	var open []v1.AddressRequest
	since := make(map[v1.AddressRequest]time.Time)
	for _, r := range h.object.Spec.Requested {
		address, err := netip.ParseAddr(string(r.Address))
		first, known := h.requested[r]
		if !known {
			first = l.config.Now()
		}
		since[r] = first
		own := string(r.Node) == l.config.Node && loanOf(h.object, address) == nil
		if err == nil && !own && l.config.Now().Sub(first) < requestTime && l.reserve(h, address, r.Namespace) {
			open = append(open, r)
		}
	}
	h.requested = since
	return open
}

// reserve withholds an address for a pod of another node; false: a pod of this node has it, or had it a moment ago in
// another namespace, or the block offers the maximum.
func (l *lender) reserve(h *held, address netip.Addr, namespace string) bool {
	if slices.Contains(h.Withheld, address) {
		return true
	}
	if l.config.Keep == nil || len(h.Withheld) >= mostOffered || !h.Prefix.Contains(address) ||
		!l.config.Local.Withhold(h.Block, address, namespace).IsValid() {
		return false
	}
	h.Withheld = append(h.Withheld, address)
	return true
}

func isOf(address netip.Addr) func(v1.AddressRequest) bool {
	return func(r v1.AddressRequest) bool { return string(r.Address) == address.String() }
}

func texts(list []netip.Addr) []v1.IP {
	var written []v1.IP
	for _, a := range list {
		written = append(written, v1.IP(a.String()))
	}
	return written
}

func same(x, y []netip.Addr) bool {
	x = slices.Clone(x)
	y = slices.Clone(y)
	slices.SortFunc(x, netip.Addr.Compare)
	slices.SortFunc(y, netip.Addr.Compare)
	return slices.Equal(x, y)
}
