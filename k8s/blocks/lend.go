package blocks

import (
	"context"
	"net/netip"
	"slices"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// offers is how many addresses of a pool a node has on offer: enough that a node in need finds one at its first or
// second neighbour, few enough that the owner does not miss them.
const offers = 8

// lend offers addresses of this node to nodes for which no block is left, or takes back what nobody borrowed. An
// address on offer is withheld here before anybody can see the offer, and until it is certain that nobody can take it.
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

// offer brings the number of the block's addresses that others borrow, or may, to wanted; never below those borrowed.
func (k *Keeper) offer(ctx context.Context, h *held, wanted int) error {
	for len(h.Withheld) < wanted {
		address := k.config.Local.Withhold(h.Block)
		if !address.IsValid() {
			break
		}
		h.Withheld = append(h.Withheld, address)
	}
	keep := slices.Clone(h.Withheld)
	for _, address := range h.Withheld {
		if len(keep) > wanted && !isBorrowed(h.object, address) {
			keep = slices.DeleteFunc(keep, func(a netip.Addr) bool { return a == address })
		}
	}
	if same(addresses(h.object.Spec.Offered), keep) && same(h.Withheld, keep) {
		return nil
	}
	// Also written where nothing would change, but more is withheld: an offer that nobody answered may be under way.
	if err := k.keep(); err != nil {
		return err
	}
	b := h.object.DeepCopy()
	b.Spec.Offered = texts(keep)
	if err := k.write(ctx, h, b); err != nil {
		return err // it is open whether others see the offer: the next look writes it again
	}
	if !same(addresses(h.object.Spec.Offered), keep) {
		return nil // somebody wrote meanwhile: so does the next look
	}
	for _, address := range h.Withheld {
		if !slices.Contains(keep, address) {
			k.config.Local.Return(h.Block, address)
		}
	}
	h.Withheld = keep
	return nil
}

func isBorrowed(b *v1.IPBlock, address netip.Addr) bool {
	return slices.ContainsFunc(b.Spec.Borrowed, func(l v1.Loan) bool { return string(l.Address) == address.String() })
}

// addresses reads what the API server has checked; what is none is left out.
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
