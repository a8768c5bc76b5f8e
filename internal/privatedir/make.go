// Package privatedir makes directories that only their owner may enter.
package privatedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mode is the mode of a private directory.
const mode = 0o700

// Make creates a directory that only the user of this process may enter, with its parents, or restricts an existing
// one. Links in the parents are followed, but the directory itself is not a link: Make returns an error for a link,
// another file and a directory of another user, who could replace each file in it. Make does not look at the content of
// an existing directory.
func Make(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return foreign(path)
	}
	if err != nil {
		return fmt.Errorf("open directory %s: %w", path, err)
	}
	defer unix.Close(fd)
	return restrict(fd, path)
}

// restrict sets the mode of an open directory unless it has another owner.
func restrict(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("read owner of directory %s: %w", path, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return foreign(path)
	}
	if st.Mode&0o777 == mode {
		return nil
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return fmt.Errorf("restrict directory %s to its owner: %w", path, err)
	}
	return nil
}

// foreign is the error for a file that is not a directory of this user. Agents and installers run as root.
func foreign(path string) error {
	return fmt.Errorf("%s is not a directory owned by root: remove it, or configure another one", path)
}
