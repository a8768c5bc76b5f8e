package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/wire"
)

// dirEntry identifies a file by the descriptor of its directory and its name there. A changed path cannot redirect
// later operations.
type dirEntry struct {
	dir  int
	base string
	name string // the whole path, for errors
}

const asDirectory = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// withEntry runs f on the entry of a path, whether the file exists or not.
func withEntry(name string, f func(dirEntry) error) error {
	dir, err := openDirectory(path.Dir(name))
	if err != nil {
		return fmt.Errorf("open directory of %s: %w", name, err)
	}
	defer unix.Close(dir)
	return f(dirEntry{dir, path.Base(name), name})
}

// openDirectory opens a directory by its path. It follows symbolic links in directories that only root can change,
// since an administrator made them. It follows none behind the first directory that other users can change.
func openDirectory(name string) (int, error) {
	base, rest := splitTrusted(name)
	fd, err := unix.Open(base, asDirectory, 0)
	for _, part := range rest {
		if err != nil {
			break
		}
		above := fd
		fd, err = unix.Openat(above, part, asDirectory|unix.O_NOFOLLOW, 0)
		unix.Close(above)
	}
	return fd, err
}

// splitTrusted splits a path behind the first directory that users other than root and the agent can change.
func splitTrusted(name string) (base string, rest []string) {
	base = "/"
	rest = strings.Split(name[1:], "/")
	for len(rest) > 0 {
		var st unix.Stat_t
		err := unix.Stat(base, &st)
		if err != nil || int(st.Uid) != os.Geteuid() && st.Uid != 0 || st.Mode&0o022 != 0 {
			break
		}
		base = path.Join(base, rest[0])
		rest = rest[1:]
	}
	return base, rest
}

// isAbsent reports whether a path has no file, or only one behind a symbolic link that is not followed.
func isAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// put creates or updates the file.
func (s dirEntry) put(v wire.File) error {
	switch v.Type {
	case wire.Directory:
		return s.putDirectory(v)
	case wire.Socket:
		return s.putSocket(v)
	default:
		return s.putRegular(v)
	}
}

// remove removes a file of type t and keeps files of other types. It removes a symbolic link at the path of a regular
// file but not its target: a process that can write in the directory may have planted it.
func (s dirEntry) remove(ctx context.Context, t wire.FileType) error {
	mode, err := s.mode()
	if err != nil {
		return err
	}
	switch {
	case t == wire.Directory && mode.IsDir():
		return s.removeDirectory(ctx)
	case t == wire.RegularFile && (mode.IsRegular() || mode&fs.ModeSymlink != 0):
		if err := unix.Unlinkat(s.dir, s.base, 0); err != nil {
			return fmt.Errorf("remove %s: %w", s.name, err)
		}
	}
	return nil
}

// mode returns the mode of the file without following a symbolic link.
func (s dirEntry) mode() (fs.FileMode, error) {
	f, info, err := s.open()
	if err != nil {
		return 0, err
	}
	return info.Mode(), f.Close()
}

// modeBits are the permissions and the special bits of a mode.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// read reads the file. It returns up to limit bytes of a regular file as its secret.
func (s dirEntry) read(limit int) (v wire.File, err error) {
	f, info, err := s.open()
	if err != nil {
		return v, err
	}
	defer f.Close()
	st := statOf(info)
	mode := info.Mode()
	v = wire.File{Mode: mode & modeBits, UID: int(st.Uid), GID: int(st.Gid)}
	switch {
	case mode.IsDir():
		v.Type = wire.Directory
	case mode&fs.ModeSocket != 0:
		v.Type = wire.Socket
	case mode.IsRegular():
		v.Type = wire.RegularFile
		v.Secret, err = s.text(f, limit)
	}
	return v, err
}

// open opens a file of any type without reading from it (O_PATH).
func (s dirEntry) open() (f *os.File, info fs.FileInfo, err error) {
	fd, err := unix.Openat(s.dir, s.base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", s.name, err)
	}
	f = os.NewFile(uintptr(fd), s.name)
	if info, err = f.Stat(); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

func statOf(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

// text reads a regular file. It returns "" while the file's owner has a lease on it (fcntl(2), F_SETLEASE): a blocking
// open would wait 45 s for the owner. A file with another content is replaced, which does not wait.
func (s dirEntry) text(opened *os.File, limit int) (secret.Text, error) {
	own, err := unix.Open(fdPath(opened), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", s.name, err)
	}
	f := os.NewFile(uintptr(own), s.name)
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", s.name, err)
	}
	return secret.Text(b), nil
}

// fdPath returns a path of an open file that does not depend on its name.
func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// conflict is the error for a foreign file of another type than t.
func (s dirEntry) conflict(mode fs.FileMode, t wire.FileType) error {
	return fmt.Errorf("create %s %s: a %s, which Weft did not create, already exists: remove it", t, s.name,
		described(mode))
}

func described(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "regular file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symbolic link"
	case fs.ModeSocket:
		return "socket"
	case fs.ModeNamedPipe:
		return "named pipe"
	}
	return "device"
}

// removal empties a directory to which other processes may add files at the same time. It needs two descriptors for any
// depth, since it moves nested directories up into the top one. It follows no symbolic link. It tries to remove each
// directory before it enters it, so that the kernel returns EBUSY for a mount point.
type removal struct {
	top    int
	name   string // of the directory, for errors
	number int    // of the last directory that was moved up
}

// chunk is the number of names that are read at once.
const chunk = 1024

// removeDirectory removes a directory with its contents. After an error, a part may be left.
func (s dirEntry) removeDirectory(ctx context.Context) error {
	err := rmdir(s.dir, s.base)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return s.notRemoved(err)
	}
	top, err := unix.Openat(s.dir, s.base, asDirectory|unix.O_NOFOLLOW, 0)
	if err != nil {
		return s.notRemoved(err)
	}
	defer unix.Close(top)
	r := removal{top: top, name: s.name}
	if err := r.empty(ctx); err != nil {
		return err
	}
	return s.notRemoved(rmdir(s.dir, s.base))
}

func (s dirEntry) notRemoved(err error) error {
	if err != nil {
		return fmt.Errorf("remove directory %s: %w", s.name, err)
	}
	return nil
}

// empty removes entries until the directory is empty or ctx ends.
func (r *removal) empty(ctx context.Context) error {
	// From here on, other users can add files only in nested directories that they have open.
	if err := errors.Join(unix.Fchown(r.top, os.Geteuid(), os.Getegid()), unix.Fchmod(r.top, 0o700)); err != nil {
		return fmt.Errorf("restrict directory %s: %w", r.name, err)
	}
	for {
		names, err := entries(r.top)
		if err != nil {
			return fmt.Errorf("list directory %s: %w", r.name, err)
		}
		if len(names) == 0 {
			return nil
		}
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("remove directory %s: %w", r.name, err)
			}
			if err := r.clear(name); err != nil {
				return fmt.Errorf("remove %s in %s: %w", name, r.name, err)
			}
		}
	}
}

// clear removes one entry, or some entries of a directory.
func (r *removal) clear(name string) error {
	err := unlink(r.top, name)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	fd, err := unix.Openat(r.top, name, asDirectory|unix.O_NOFOLLOW, 0)
	if isAbsent(err) {
		return nil // another process replaced it; the next round removes that
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	names, err := entries(fd)
	if err != nil {
		return err
	}
	for _, inner := range names {
		err := unlink(fd, inner)
		if errors.Is(err, unix.ENOTEMPTY) {
			err = r.moveUp(fd, inner)
		}
		if err != nil {
			return err
		}
	}
	if err := unlink(r.top, name); !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

var (
	errMounted = errors.New("it is a mount point: unmount it")
	errTaken   = errors.New("no free name to move it to")
)

// moveUp moves a directory into the top one, under a free name.
func (r *removal) moveUp(from int, name string) error {
	for range chunk {
		r.number++
		err := unix.Renameat2(from, name, r.top, fmt.Sprintf(".weft-%d", r.number), unix.RENAME_NOREPLACE)
		switch {
		case err == nil || errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EBUSY):
			return errMounted
		case !errors.Is(err, unix.EEXIST):
			return err
		}
	}
	return errTaken
}

// unlink removes a file or an empty directory. It returns ENOTEMPTY for another directory and nil for a missing file.
func unlink(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	switch {
	case errors.Is(err, unix.EISDIR):
		return rmdir(dir, name)
	case errors.Is(err, unix.ENOENT):
		return nil
	}
	return err
}

// rmdir removes an empty directory. It returns nil if there is no directory of that name.
func rmdir(dir int, name string) error {
	err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	switch {
	case errors.Is(err, unix.EBUSY):
		return errMounted
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil
	}
	return err
}

// entries returns some names in a directory; none if it is empty.
func entries(fd int) ([]string, error) {
	own, err := unix.Openat(fd, ".", asDirectory, 0) // reading moves the offset of a descriptor
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), ".")
	defer f.Close()
	names, err := f.Readdirnames(chunk)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return names, err
}
