package linux

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// putDirectory makes a directory, or takes the one that is there. It is closed until it has its owner.
func (s spot) putDirectory(v wire.File) error {
	err := unix.Mkdirat(s.dir, s.base, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make directory %s: %w", s.name, err)
	}
	fd, st, err := s.hold()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if mode := modeOf(st); !mode.IsDir() {
		return s.inTheWay(mode, v.Type)
	}
	err = s.own(fd, v)
	if err != nil && made {
		_ = unix.Unlinkat(s.dir, s.base, unix.AT_REMOVEDIR)
	}
	return err
}
