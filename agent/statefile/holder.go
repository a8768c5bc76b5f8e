package statefile

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// holder describes the process that has locked the file. /proc/locks identifies the file by its inode.
func holder(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return "another process"
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return "another process"
	}
	defer f.Close()
	suffix := fmt.Sprintf(":%d", st.Ino)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 708 00:13:12345 0 EOF
		fields := strings.Fields(lines.Text())
		if len(fields) > 5 && strings.HasSuffix(fields[5], suffix) {
			return fmt.Sprintf("process %s (%s)", fields[4], command(fields[4]))
		}
	}
	return "another process"
}

func command(pid string) string {
	comm, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return "ended"
	}
	return strings.TrimSpace(string(comm))
}
