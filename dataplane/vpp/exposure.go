package vpp

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// exposure says which users besides root may connect to the API socket. They could configure the dataplane and read its secrets. It
// returns "" if only root can, or if that cannot be found out.
func exposure(socket string) string {
	info, err := os.Stat(socket)
	if err != nil {
		return ""
	}
	who := writers(info)
	for dir := filepath.Dir(socket); who != 0; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return ""
		}
		who &= searchers(info)
		if dir == filepath.Dir(dir) {
			break
		}
	}
	switch {
	case who&0o007 != 0:
		return "every user"
	case who != 0:
		return "its group"
	}
	return ""
}

// writers are the classes of users, 0o070 and 0o007, that may connect to a socket. A group of root's own is root.
func writers(info fs.FileInfo) fs.FileMode { return class(info, 0o020, 0o002) }

// searchers are the classes that may pass a directory.
func searchers(info fs.FileInfo) fs.FileMode {
	who := class(info, 0o010, 0o001)
	if who&0o007 != 0 {
		who |= 0o070 // a group that is not the directory's is among the others
	}
	return who
}

func class(info fs.FileInfo, group, other fs.FileMode) (who fs.FileMode) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if info.Mode()&group != 0 && ok && st.Gid != 0 {
		who |= 0o070
	}
	if info.Mode()&other != 0 {
		who |= 0o007
	}
	return who
}
