package statefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"go.etcd.io/bbolt"
)

// bbolt maps its file and follows page numbers without checks. A number beyond the end of the file causes a memory
// fault, and a cycle causes an endless recursion. Both end the process; tx.Check runs in a goroutine that cannot
// recover. Therefore checkPages reads the pages first, while the file is open read-only: bbolt has read only the meta
// pages then. A child process in place of this check would grow beyond 1 GB for such a cycle, and if it is killed, the
// agent could not distinguish a damaged file from a lack of memory.
//
// The layout (bbolt's internal/common/page.go and bucket.go, version 2 of the format), in the byte order of the
// machine:
//
//	page:           id 8, flags 2, count 2, overflow 4 (number of further pages), elements
//	branch element: position of the key 4, its size 4, page 8
//	leaf element:   flags 4, position of the key 4, its size 4, size of the value 4; the value follows the key
//	bucket (value): root page 8, sequence 8, and if the root page is 0, a leaf page
//	meta page:      16 bytes, root bucket, list of free pages 8, end 8, transaction 8
//	free pages:     8 each; if count is 65535 the first is the count
const (
	pageHeader   = 16
	pageElement  = 16
	bucketHeader = 16

	branchPage    = 0x01
	freePage      = 0x10
	manyFree      = 1<<16 - 1
	leafPage      = 0x02
	bucketElement = 0x01
)

// pageWalk reads each page of a state file once.
type pageWalk struct {
	file *os.File
	size uint64 // of a page, in bytes
	end  uint64 // number of the first unused page
	seen map[uint64]bool
}

// checkPages reports whether all pages of an open file are within it and form a tree.
func checkPages(db *bbolt.DB) error {
	file, err := os.Open(db.Path())
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("%w: the file has %d of %d bytes", errDamaged, info.Size(), tx.Size())
		}
		size := uint64(db.Info().PageSize)
		walk := pageWalk{file: file, size: size, end: uint64(tx.Size()) / size, seen: map[uint64]bool{}}
		if err := walk.page(uint64(tx.Cursor().Bucket().Root())); err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		if err := walk.freePages(uint64(tx.ID())); err != nil {
			return fmt.Errorf("%w: list of free pages: %w", errDamaged, err)
		}
		return nil
	})
}

// page checks a page and its children.
func (w *pageWalk) page(id uint64) error {
	var header [pageHeader]byte
	if id < 2 || id >= w.end { // the first two are meta pages
		return fmt.Errorf("page %d does not exist", id)
	}
	if _, err := w.file.ReadAt(header[:], int64(id*w.size)); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	more := uint64(binary.NativeEndian.Uint32(header[12:]))
	if id+more >= w.end {
		return fmt.Errorf("page %d has %d further pages, the file has %d", id, more, w.end)
	}
	for at := id; at <= id+more; at++ {
		if w.seen[at] {
			return fmt.Errorf("page %d is used twice", at)
		}
		w.seen[at] = true
	}
	whole := make([]byte, (1+more)*w.size)
	if _, err := w.file.ReadAt(whole, int64(id*w.size)); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	children, err := childrenOf(whole)
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	for _, child := range children {
		if err := w.page(child); err != nil {
			return err
		}
	}
	return nil
}

// freePages checks the list of free pages. The meta page of a transaction has its page number.
func (w *pageWalk) freePages(transaction uint64) error {
	var meta [pageHeader + 64]byte
	for _, at := range []uint64{0, w.size} {
		_, err := w.file.ReadAt(meta[:], int64(at))
		if err != nil || binary.NativeEndian.Uint64(meta[pageHeader+48:]) != transaction {
			continue
		}
		id := binary.NativeEndian.Uint64(meta[pageHeader+32:])
		if id == math.MaxUint64 { // no list
			return nil
		}
		var header [pageHeader + 8]byte
		if id < 2 || id >= w.end || w.seen[id] {
			return fmt.Errorf("page %d does not exist", id)
		}
		if _, err := w.file.ReadAt(header[:], int64(id*w.size)); err != nil {
			return err
		}
		more := uint64(binary.NativeEndian.Uint32(header[12:]))
		count := uint64(binary.NativeEndian.Uint16(header[10:]))
		if count == manyFree {
			count = binary.NativeEndian.Uint64(header[pageHeader:])
		}
		if binary.NativeEndian.Uint16(header[8:]) != freePage || id+more >= w.end || count > (1+more)*w.size/8 {
			return fmt.Errorf("page %d has %d elements and %d further pages", id, count, more)
		}
		return nil
	}
	return errors.New("no meta page of the transaction")
}

// childrenOf returns the numbers of the child pages in a page. It rejects empty keys, for which bbolt ends the process
// when it changes the page.
func childrenOf(page []byte) (children []uint64, err error) {
	flags := binary.NativeEndian.Uint16(page[8:])
	count := int(binary.NativeEndian.Uint16(page[10:]))
	if flags != branchPage && flags != leafPage || pageHeader+count*pageElement > len(page) {
		return nil, fmt.Errorf("%d elements and flags %#x", count, flags)
	}
	for i := range count {
		rest := page[pageHeader+i*pageElement:]
		if flags == branchPage {
			if uint64(field(rest, 0))+uint64(field(rest, 4)) > uint64(len(rest)) {
				return nil, fmt.Errorf("element %d is beyond its end", i)
			}
			if field(rest, 4) == 0 {
				return nil, fmt.Errorf("element %d has no key", i)
			}
			children = append(children, binary.NativeEndian.Uint64(rest[8:]))
			continue
		}
		value := uint64(field(rest, 4)) + uint64(field(rest, 8))
		size := uint64(field(rest, 12))
		if value+size > uint64(len(rest)) {
			return nil, fmt.Errorf("element %d is beyond its end", i)
		}
		if field(rest, 8) == 0 {
			return nil, fmt.Errorf("element %d has no key", i)
		}
		if field(rest, 0)&bucketElement == 0 {
			continue
		}
		roots, err := pagesOfBucket(rest[value : value+size])
		if err != nil {
			return nil, fmt.Errorf("bucket %d: %w", i, err)
		}
		children = append(children, roots...)
	}
	return children, nil
}

// pagesOfBucket returns the root page of a bucket, or the children of an inline bucket.
func pagesOfBucket(bucket []byte) ([]uint64, error) {
	if len(bucket) < bucketHeader {
		return nil, fmt.Errorf("bucket has %d bytes", len(bucket))
	}
	if root := binary.NativeEndian.Uint64(bucket); root != 0 {
		return []uint64{root}, nil
	}
	inner := bucket[bucketHeader:]
	if len(inner) < pageHeader || binary.NativeEndian.Uint16(inner[8:]) != leafPage {
		return nil, fmt.Errorf("its %d bytes are not a leaf page", len(inner))
	}
	children, err := childrenOf(inner)
	if err == nil && len(children) > 0 {
		err = errors.New("the inline page has buckets")
	}
	return nil, err
}

func field(element []byte, at int) uint32 { return binary.NativeEndian.Uint32(element[at:]) }
