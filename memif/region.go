package memif

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// checkRegion judges memory that a client offers, and seals it against shrinking. sealed says that touching it cannot
// fault, and sparse is how many of its bytes have no pages yet: the process that touches these first pays for them. The kernel answers the first question without asking the file system, which may be the client's (FUSE) and
// never answer.
func checkRegion(fd int, size uint64) (sealed bool, sparse uint64, err error) {
	seals, ok := sealsOf(fd)
	if !ok {
		return false, 0, refusal("region is not shared memory")
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	// After sealing: what is measured cannot become less.
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return false, 0, fmt.Errorf("measure region: %w", err)
	}
	if stat.Size < 0 || uint64(stat.Size) < size {
		return false, 0, refusal("region is shorter than announced")
	}
	return err == nil && !isHuge(fd), size - min(size, uint64(stat.Blocks)*blockSize), nil
}

// blockSize is the unit of Stat_t.Blocks, in bytes.
const blockSize = 512

// isHuge tells huge pages: a hole in them may find none left to fill it.
func isHuge(fd int) bool {
	var fs unix.Statfs_t
	err := unix.Fstatfs(fd, &fs)
	return err != nil || fs.Type != unix.TMPFS_MAGIC
}

// isEventfd looks at what a descriptor is without asking it.
func isEventfd(fd int) bool {
	kind, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return err == nil && kind == "anon_inode:[eventfd]"
}

// sealsOf reads the seals of shared memory; false: it is none.
func sealsOf(fd int) (seals int, ok bool) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return seals, err == nil
}
