package linux

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// handle is a netlink socket in a namespace. Its thread is there too, for what netlink does not do.
type handle struct {
	*netlink.Handle
	links map[string]netlink.Link
}

// errNoLink means that a link is not there.
var errNoLink = errors.New("no such link")

// maxTries bounds how often a dump is tried that others' changes keep interrupting.
const maxTries = 10

// whole makes a dump and repeats it when it was interrupted: by a change of what is dumped, or by a signal.
func whole[T any](list func() (T, error)) (found T, err error) {
	for range maxTries {
		if found, err = list(); !interrupted(err) {
			return found, err
		}
	}
	var none T
	return none, fmt.Errorf("interrupted %d times: %w", maxTries, err)
}

func interrupted(err error) bool {
	return errors.Is(err, netlink.ErrDumpInterrupted) || errors.Is(err, unix.EINTR)
}

// link finds a link by name, once a visit.
func (h *handle) link(name string) (netlink.Link, error) {
	if l, ok := h.links[name]; ok {
		return l, nil
	}
	l, err := whole(func() (netlink.Link, error) { return h.LinkByName(name) })
	if errors.As(err, new(netlink.LinkNotFoundError)) || err == nil && l.Attrs().Name != name { // an alternative name is another's
		return nil, fmt.Errorf("link %s: %w", name, errNoLink)
	}
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	h.links[name] = l
	return l, nil
}

// isGone tells whether an operation failed because what it was to remove is not there.
func isGone(err error) bool {
	for _, gone := range []error{errNoLink, ErrGone, unix.ENODEV, unix.ENOENT, unix.ESRCH, unix.EADDRNOTAVAIL, unix.ENXIO} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
