package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// Link is a link that was found in a namespace.
type Link struct {
	Name  string
	Alias string // who it belongs to, as far as it has been said
	Index int
	Tap   bool // it is the Linux end of a tap
}

// HasNamespaces reports whether a directory has at least one mounted namespace.
func HasNamespaces(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		var fs unix.Statfs_t
		return unix.Statfs(filepath.Join(dir, e.Name()), &fs) == nil && fs.Type == unix.NSFS_MAGIC
	})
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

func isVeth(l netlink.Link) bool { return l.Type() == (&netlink.Veth{}).Type() }

// LinkState is what a link of a namespace says of itself.
type LinkState struct {
	Inode, Device uint64 // of the namespace
	Alias         string // who the link belongs to, as far as it has been said
	Tap           bool   // it is the Linux end of a tap
	Veth          bool   // it is an end of a veth
	MAC           wire.MAC
	MTU           int
	Addresses     []netip.Prefix // without those that the kernel makes by itself
}

// InspectLink reads a link of the namespace at path. The error wraps ErrGone if the namespace is gone, and only then.
func InspectLink(path, name string) (s LinkState, err error) {
	s.Inode, s.Device, err = Inspect(path)
	if err != nil {
		return s, err
	}
	err = visit(path, Place{s.Inode, s.Device}, func(h *handle) error {
		l, err := h.link(name)
		if err != nil {
			return err
		}
		a := l.Attrs()
		s.Alias, s.Tap, s.Veth, s.MTU, s.MAC = a.Alias, isTap(l), isVeth(l), a.MTU, macOf(l)
		s.Addresses, err = addressesOf(h, l)
		return err
	})
	return s, err
}

func addressesOf(h *handle, l netlink.Link) ([]netip.Prefix, error) {
	list, err := whole(func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
	}
	var found []netip.Prefix
	for _, a := range list {
		if p := prefixOf(a.IPNet); p.IsValid() && !p.Addr().IsLinkLocalUnicast() {
			found = append(found, p)
		}
	}
	return found, nil
}

// LinkOf finds the link of the agent's own namespace that has an address.
func LinkOf(address netip.Addr) (name string, mtu int, err error) {
	err = visit("", Place{}, func(h *handle) error {
		links, err := whole(h.LinkList)
		if err != nil {
			return err
		}
		for _, l := range links {
			has, err := addressesOf(h, l)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(has, func(p netip.Prefix) bool { return p.Addr() == address }) {
				name, mtu = l.Attrs().Name, l.Attrs().MTU
				return nil
			}
		}
		return fmt.Errorf("no link of the node has address %s", address)
	})
	return name, mtu, err
}
