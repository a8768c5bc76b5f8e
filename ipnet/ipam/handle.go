package ipam

import (
	"cmp"
	"net/netip"
	"slices"
)

// handles say in which books each holder has an address: a holder's addresses are found without a search of all blocks.
type handles map[string][]*book

// bind notes that a holder has an address of the book.
func (b *book) bind(holder string, address netip.Addr) {
	b.holders[holder] = address
	if !slices.Contains(b.handles[holder], b) {
		b.handles[holder] = append(b.handles[holder], b)
	}
}

// unbind is the inverse of bind.
func (b *book) unbind(holder string) {
	delete(b.holders, holder)
	left := slices.DeleteFunc(b.handles[holder], func(o *book) bool { return o == b })
	if b.handles[holder] = left; len(left) == 0 {
		delete(b.handles, holder)
	}
}

// ofHolderLocked are the books in which a holder has an address, in the order of the pools.
func (a *Allocator) ofHolderLocked(holder string) []*book {
	books := slices.Clone(a.handles[holder])
	if len(books) < 2 {
		return books
	}
	place := func(b *book) int {
		return slices.IndexFunc(a.stocks, func(s *stock) bool { return s.Prefix.Contains(b.block.Addr()) })
	}
	slices.SortStableFunc(books, func(x, y *book) int { return cmp.Compare(place(x), place(y)) })
	return books
}
