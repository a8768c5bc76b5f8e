package port

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelTakesUSO says that UDP segments can be handed to the kernel with a virtio header: since Linux 6.2.
func kernelTakesUSO() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	return releaseSince(unix.ByteSliceToString(u.Release[:]), 6, 2)
}

// releaseSince compares the first two numbers of a kernel's release; one that cannot be read is old.
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
