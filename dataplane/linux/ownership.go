package linux

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// own gives what a descriptor holds its owner, group and mode. It does nothing where they are right already.
func (s spot) own(fd int, v wire.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at %s: %w", s.name, err)
	}
	if int(st.Uid) != v.UID || int(st.Gid) != v.GID {
		if err := s.give(fd, v); err != nil {
			return err
		}
	} else if permissions(&st) == bits(v.Mode) {
		return nil
	}
	if err := unix.Chmod(held(fd), bits(v.Mode)); err != nil {
		return fmt.Errorf("set mode %s of %s: %w", v.Mode, s.name, err)
	}
	// The kernel drops setgid without a word for who may not set it.
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at %s: %w", s.name, err)
	}
	if got := permissions(&st); got != bits(v.Mode) {
		return fmt.Errorf("set mode %s of %s: the kernel made it %#o", v.Mode, s.name, got)
	}
	return nil
}

// give changes owner and group. What the old group was allowed is taken away before, so that the new one never has it,
// and the new mode comes after: a change of owner may cost mode bits.
func (s spot) give(fd int, v wire.File) error {
	if err := unix.Chmod(held(fd), bits(v.Mode)&0o700); err != nil {
		return fmt.Errorf("close %s: %w", s.name, err)
	}
	if err := unix.Fchownat(fd, "", v.UID, v.GID, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("give %s to %d:%d: %w", s.name, v.UID, v.GID, err)
	}
	return nil
}

func permissions(st *unix.Stat_t) uint32 { return st.Mode & 0o7777 }

// bits is a mode as the kernel has it.
func bits(m fs.FileMode) uint32 {
	b := uint32(m.Perm())
	if m&fs.ModeSetgid != 0 {
		b |= unix.S_ISGID
	}
	return b
}
