package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

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
