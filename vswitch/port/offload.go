// Package port opens the ports of dataplane interfaces and moves vectors of frames through them.
package port

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Offload is the work on a frame that its receiver may complete.
type Offload struct {
	Checksum bool // partial L4 checksums (VIRTIO_NET_HDR_F_NEEDS_CSUM)
	TCP      bool // TCP segmentation of up to 64 KiB, both families
	UDP      bool // UDP segmentation (USO); since Linux 6.2
}

// kernelSupportsUSO reports whether the kernel accepts UDP segmentation in a virtio header: since Linux 6.2.
func kernelSupportsUSO() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	return releaseSince(unix.ByteSliceToString(u.Release[:]), 6, 2)
}

// releaseSince compares the first two numbers of a kernel release; false if they are invalid.
func releaseSince(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	second, _, _ := strings.Cut(rest, ".")
	if i := strings.IndexFunc(second, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		second = second[:i]
	}
	a, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	b, _ := strconv.Atoi(second)
	return a > major || a == major && b >= minor
}
