package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// unfinished starts the name of a regular file that is being written. One that is left of a crash is in nobody's way:
// the next one of the same name replaces it.
const unfinished = ".weft-unfinished-"

// putRegular writes a new file beside the old one, with its owner and mode, and puts it in its place: who reads has all
// of one or all of the other, and never what he may not have.
func (s spot) putRegular(v wire.File) error {
	if err := s.mayReplace(); err != nil {
		return err
	}
	beside := spot{s.dir, unfinished + s.base, s.name}
	fd, err := beside.begin()
	if err != nil {
		return err
	}
	if err = beside.write(fd, v); err == nil {
		if err = unix.Renameat(s.dir, beside.base, s.dir, s.base); err == nil {
			return nil
		}
		err = fmt.Errorf("put %s in its place: %w", s.name, err)
	}
	return errors.Join(err, beside.discard())
}

// mayReplace refuses to replace what nobody makes by mistake. A link at a name of ours is what a pod would plant: it is
// replaced, and what it leads to is left alone.
func (s spot) mayReplace() error {
	mode, err := s.mode()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil && !mode.IsRegular() && mode&fs.ModeSymlink == 0 {
		return s.inTheWay(mode, wire.RegularFile)
	}
	return err
}

// begin makes the empty file that only we can read.
func (s spot) begin() (fd int, err error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err = unix.Openat(s.dir, s.base, flags, 0o600)
	if errors.Is(err, unix.EEXIST) {
		if err = s.discard(); err == nil {
			fd, err = unix.Openat(s.dir, s.base, flags, 0o600)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("begin %s: %w", s.name, err)
	}
	return fd, nil
}

// write fills the file and closes it. It is on the disk before it gets its name, so that a crash leaves none empty.
func (s spot) write(fd int, v wire.File) error {
	f := os.NewFile(uintptr(fd), s.base)
	_, err := f.WriteString(v.Content + string(v.Secret))
	if err == nil {
		err = s.own(fd, v)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", s.name, err)
	}
	return nil
}

// discard removes an unfinished file.
func (s spot) discard() error {
	if err := unix.Unlinkat(s.dir, s.base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", s.base, err)
	}
	return nil
}
