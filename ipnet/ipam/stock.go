package ipam

import (
	"net/netip"
	"time"
)

// stock is a pool with a book of each of its blocks, or one book of the whole of it.
type stock struct {
	Pool
	books   []*book // in the order in which the blocks came
	handles handles // of all pools
}

func newStock(p Pool, h handles, now time.Time) *stock {
	s := &stock{Pool: p, handles: h}
	if !p.Blocks {
		b := newBook(p, p.Prefix, h)
		b.reserve(Lease{Pool: p.Name, Address: p.Node(), Holder: InternalHolder, State: Internal, Since: now})
		s.books = append(s.books, b)
	}
	return s
}

// isForPods reports whether pods can have an address of the pool.
func (s *stock) isForPods(a netip.Addr) bool { return !a.Less(s.first()) && !s.last().Less(a) }

// stockOfLocked is the pool that an address is in; nil if it is in none.
func (a *Allocator) stockOfLocked(address netip.Addr) *stock {
	for _, s := range a.stocks {
		if s.Prefix.Contains(address) {
			return s
		}
	}
	return nil
}

// bookOf is the book that an address is in; nil if it is in none. A block of one address counts for more than one around it:
// it is what another node lends.
func (s *stock) bookOf(address netip.Addr) *book {
	var found *book
	for _, b := range s.books {
		if b.block.Contains(address) && (found == nil || found.block.Bits() < b.block.Bits()) {
			found = b
		}
	}
	return found
}

// book is that of a block; nil if there is none.
func (s *stock) book(block netip.Prefix) *book {
	for _, b := range s.books {
		if b.block == block {
			return b
		}
	}
	return nil
}

// booksLocked are all books, in the order of the pools.
func (a *Allocator) booksLocked() []*book { return booksOf(a.stocks) }

func booksOf(stocks []*stock) []*book {
	if len(stocks) == 1 {
		return stocks[0].books
	}
	var books []*book
	for _, s := range stocks {
		books = append(books, s.books...)
	}
	return books
}
