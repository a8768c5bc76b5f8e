package linux

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Link is a link that was found in a namespace.
type Link struct {
	Name  string
	Alias string // who it belongs to, as far as it has been said
	Index int
	Tap   bool // it is the Linux end of a tap
}

// LinkAlias reads the alias of a link; exists is false if there is no such link. An empty path is the agent's own
// namespace; one that is gone is an error that wraps ErrGone.
func LinkAlias(path, name string) (alias string, exists bool, err error) {
	err = visit(path, Place{}, func(h *handle) error {
		l, err := h.link(name)
		if errors.Is(err, errNoLink) {
			return nil
		}
		if err == nil {
			alias, exists = l.Attrs().Alias, true
		}
		return err
	})
	return alias, exists, err
}

// Links lists the links of a namespace, as LinkAlias names it, so that what is left of ours is found by its alias.
func Links(path string) ([]Link, error) {
	var found []Link
	err := visit(path, Place{}, func(h *handle) error {
		list, err := whole(h.LinkList)
		for _, l := range list {
			a := l.Attrs()
			found = append(found, Link{Name: a.Name, Alias: a.Alias, Index: a.Index, Tap: isTap(l)})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func isTap(l netlink.Link) bool { return l.Type() == (&netlink.Tuntap{}).Type() }
