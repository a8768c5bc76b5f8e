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

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/wire"
)

// spot is a file as the descriptor of its directory and its name there, so that the path cannot be redirected between two steps.
type spot struct {
	dir  int
	base string
	name string // the whole path, for errors
}

const asDirectory = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// at runs f where the file of that name stands or would stand.
func at(name string, f func(spot) error) error {
	dir, err := openDirectory(path.Dir(name))
	if err != nil {
		return fmt.Errorf("directory of %s: %w", name, err)
	}
	defer unix.Close(dir)
	return f(spot{dir, path.Base(name), name})
}

// openDirectory opens a directory by its path. As far as only root can change the way, it is a path like any other: an
// administrator may have linked it elsewhere. Behind the first directory that others may change, a link could be theirs,
// and none is followed.
func openDirectory(name string) (int, error) {
	ground, rest := trusted(name)
	fd, err := unix.Open(ground, asDirectory, 0)
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

// trusted splits a path behind the first directory in which not only root can make names.
func trusted(name string) (ground string, rest []string) {
	ground = "/"
	rest = strings.Split(name[1:], "/")
	for len(rest) > 0 {
		var st unix.Stat_t
		err := unix.Stat(ground, &st)
		if err != nil || int(st.Uid) != os.Geteuid() && st.Uid != 0 || st.Mode&0o022 != 0 {
			break
		}
		ground, rest = path.Join(ground, rest[0]), rest[1:]
	}
	return ground, rest
}

// isElsewhere tells whether there is nothing at a path, or nothing to which a true way leads.
func isElsewhere(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// put makes the file as v says.
func (s spot) put(v wire.File) error {
	switch v.Type {
	case wire.Directory:
		return s.putDirectory(v)
	case wire.Socket:
		return s.putSocket(v)
	default:
		return s.putRegular(v)
	}
}

// remove removes what is there if it is of that type. A process that may write in the directory can put a link in the place of
// a regular file: it goes, and what it leads to stays.
func (s spot) remove(ctx context.Context, t wire.FileType) error {
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

// mode is that of what is there, be it a link.
func (s spot) mode() (fs.FileMode, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(s.dir, s.base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, fmt.Errorf("look at %s: %w", s.name, err)
	}
	return modeOf(&st), nil
}

// read reads back what is there; of a regular file at most limit bytes, which are taken for a secret.
func (s spot) read(limit int) (v wire.File, err error) {
	fd, st, err := s.hold()
	if err != nil {
		return v, err
	}
	defer unix.Close(fd)
	mode := modeOf(st)
	v = wire.File{Mode: mode & (fs.ModePerm | fs.ModeSetgid | fs.ModeSetuid | fs.ModeSticky), UID: int(st.Uid), GID: int(st.Gid)}
	switch {
	case mode.IsDir():
		v.Type = wire.Directory
	case mode&fs.ModeSocket != 0:
		v.Type = wire.Socket
	case mode.IsRegular():
		v.Type = wire.RegularFile
		v.Secret, err = s.text(fd, limit)
	}
	return v, err
}

// hold opens what is there, whatever it is and without touching it, so that it stays the same thing.
func (s spot) hold() (fd int, st *unix.Stat_t, err error) {
	fd, err = unix.Openat(s.dir, s.base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, nil, fmt.Errorf("look at %s: %w", s.name, err)
	}
	st = new(unix.Stat_t)
	if err := unix.Fstat(fd, st); err != nil {
		unix.Close(fd)
		return 0, nil, fmt.Errorf("look at %s: %w", s.name, err)
	}
	return fd, st, nil
}

// text reads a regular file. It is "" while the file's owner has a lease on it (fcntl(2), F_SETLEASE): a blocking open would
// wait for the owner for 45 s, and a file that differs is replaced, which does not wait.
func (s spot) text(fd, limit int) (secret.Text, error) {
	own, err := unix.Open(held(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
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

// held is a path to what a descriptor holds, which no name can bend.
func held(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// inTheWay says what stands where a file of type t should.
func (s spot) inTheWay(mode fs.FileMode, t wire.FileType) error {
	return fmt.Errorf("%s should be a %s, but there is a %s in its way, which is not ours: it must be removed by hand", s.name, t, described(mode))
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

func modeOf(st *unix.Stat_t) fs.FileMode {
	mode := fs.FileMode(st.Mode & 0o777)
	for bit, of := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if st.Mode&bit != 0 {
			mode |= of
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFBLK, unix.S_IFCHR:
		mode |= fs.ModeDevice
	}
	return mode
}

// removal empties a directory whose contents others make, and may go on making. However deep they nest it, two
// descriptors are enough: what is in a directory in it is first moved up into it. No link is followed. Each directory is
// tried to be removed before it is entered, so that the kernel refuses the one that something is mounted on.
type removal struct {
	top    int
	name   string // of the directory, for errors
	number int    // of the next directory that is moved up
}

// chunk is how many names are read at once.
const chunk = 1024

// removeDirectory removes a directory with all that is in it. With an error, a part of it may be left.
func (s spot) removeDirectory(ctx context.Context) error {
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

func (s spot) notRemoved(err error) error {
	if err != nil {
		return fmt.Errorf("remove directory %s: %w", s.name, err)
	}
	return nil
}

// empty removes until nothing is left, or until ctx ends while another program keeps adding.
func (r *removal) empty(ctx context.Context) error {
	// Who could make names here cannot any more, unless he is in a directory further down already.
	if err := errors.Join(unix.Fchown(r.top, os.Geteuid(), os.Getegid()), unix.Fchmod(r.top, 0o700)); err != nil {
		return fmt.Errorf("close directory %s: %w", r.name, err)
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

// clear removes one entry, or makes it smaller.
func (r *removal) clear(name string) error {
	err := unlink(r.top, name)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	fd, err := unix.Openat(r.top, name, asDirectory|unix.O_NOFOLLOW, 0)
	if isElsewhere(err) {
		return nil // it is something else by now, which the next look finds
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
	errMounted = errors.New("something is mounted there")
	errTaken   = errors.New("no name was free")
)

// moveUp brings a directory into the top one, under a name that is free.
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

// unlink removes what is no directory, or an empty one; ENOTEMPTY is a directory that is not. What is missing is no error.
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

// rmdir removes an empty directory. One that is missing, or something else by now, is no error.
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

// entries are some names in a directory; none if it is empty.
func entries(fd int) ([]string, error) {
	own, err := unix.Openat(fd, ".", asDirectory, 0) // a descriptor has one place at which it reads
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
