package linux

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// errNoSocket means that who makes a socket has not made it; it may still come.
var errNoSocket = errors.New("is not there yet: no process listens on it")

// putSocket sets mode and owner of a socket that another component made. Where the dataplane did, it finds nothing to do.
func (s spot) putSocket(v wire.File) error {
	fd, st, err := s.hold()
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("socket %s %w", s.name, errNoSocket)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return s.inTheWay(modeOf(st), v.Type)
	}
	if st.Nlink != 1 { // it has another name, which may be somebody else's
		return fmt.Errorf("socket %s has %d names: it is not taken for the one that was made for it", s.name, st.Nlink)
	}
	return s.own(fd, v)
}
