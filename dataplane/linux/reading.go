package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// sought is an object with a value that it may have in the kernel.
type sought[V any] struct {
	name string
	v    V
}

// Dump looks for all known objects of the kind, in the namespaces that their values speak of, and for what an agent with
// another configuration left on the node's own links. What else stands there is not ours to see.
func (r resident[V]) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[V, Place], error] {
	var names []string
	for name := range view.All(r.kind) {
		names = append(names, name)
	}
	return func(yield func(kvscheduler.Actual[V, Place], error) bool) {
		for a, err := range r.Read(ctx, view, names) {
			if !yield(a, err) || err != nil {
				return
			}
		}
		left, err := r.leftOnNode(view, names)
		if err != nil {
			yield(kvscheduler.Actual[V, Place]{}, err)
			return
		}
		for name, v := range left {
			if !yield(kvscheduler.Actual[V, Place]{Name: name, V: v}, nil) {
				return
			}
		}
	}
}

// leftOnNode lists the objects on links of the node that have none of the known names. It reads only links on which an object
// of the kind is known: addresses on other links may belong to another kind, as those of a linux.uplink do.
func (r resident[V]) leftOnNode(view kvscheduler.View, names []string) (map[string]V, error) {
	left := map[string]V{}
	if r.list == nil {
		return left, nil
	}
	err := visit("", Place{}, func(h *handle) error {
		seen := map[string]bool{}
		for _, s := range r.seek(view, names)[""] {
			if seen[r.link(s.v)] {
				continue
			}
			seen[r.link(s.v)] = true
			there, err := r.list(h, s.v)
			if err != nil && !isGone(err) {
				return fmt.Errorf("list %s: %w", r.kind, err)
			}
			maps.Copy(left, there)
		}
		return nil
	})
	for _, name := range names {
		delete(left, name)
	}
	return left, err
}

// nodeLink finds a link of the node that is all ours, as its alias says.
func (h *handle) nodeLink(name string) (l netlink.Link, ours bool, err error) {
	l, err = h.link(name)
	return l, err == nil && strings.HasPrefix(l.Attrs().Alias, wire.AliasPrefix), err
}

// Read looks for the named objects.
func (r resident[V]) Read(ctx context.Context, view kvscheduler.View, names []string) iter.Seq2[kvscheduler.Actual[V, Place], error] {
	return func(yield func(kvscheduler.Actual[V, Place], error) bool) {
		for path, list := range r.seek(view, names) {
			found, err := r.look(ctx, view, path, list)
			if err != nil {
				yield(kvscheduler.Actual[V, Place]{}, err)
				return
			}
			for _, a := range found {
				if !yield(a, nil) {
					return
				}
			}
		}
	}
}

// seek lists by namespace what to look for. An object that moves between namespaces is looked for where it was applied.
func (r resident[V]) seek(view kvscheduler.View, names []string) map[string][]sought[V] {
	lists := map[string][]sought[V]{}
	for _, name := range names {
		values := known[V](view, r.kind, name)
		for _, v := range values {
			if path := r.namespace(v); path == r.namespace(values[0]) {
				lists[path] = append(lists[path], sought[V]{name, v})
			}
		}
	}
	return lists
}

// look visits one namespace. Nothing is found in one that is gone.
func (r resident[V]) look(ctx context.Context, view kvscheduler.View, path string, list []sought[V]) (found []kvscheduler.Actual[V, Place], err error) {
	place, ok := placeOf(view, path)
	if !ok {
		return nil, nil
	}
	err = visit(path, place, func(h *handle) error {
		seen := map[string]bool{}
		for _, s := range list {
			if seen[s.name] {
				continue
			}
			v, ok, err := r.find(h, s.name, s.v)
			if err != nil && !isGone(err) {
				return fmt.Errorf("read %s/%s: %w", r.kind, s.name, err)
			}
			if ok && err == nil {
				seen[s.name] = true
				found = append(found, kvscheduler.Actual[V, Place]{Name: s.name, V: v, Meta: place})
			}
		}
		return ctx.Err()
	})
	if errors.Is(err, ErrGone) {
		return nil, nil
	}
	return found, err
}

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

// Peer is where the pod's end of a veth is.
type Peer struct {
	Path  string // of its network namespace
	Name  string
	Alias string // of the host's end: who the veth belongs to, as far as it has been said
}

// Mounted are the network namespaces that are mounted somewhere, which runtimes do so that they have a path: their paths,
// by the number that the agent's namespace gives to them.
type Mounted map[int]string

// FindMounted looks for the network namespaces that the agent can see. Of several paths of one the first counts.
func FindMounted() (Mounted, error) {
	raw, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("look for network namespaces: %w", err)
	}
	paths, mounted := namespacePaths(string(raw)), Mounted{}
	err = visit("", Place{}, func(home *handle) error {
		for _, path := range paths {
			fd, _, err := open(path)
			if err != nil {
				continue // gone since, or hidden below another mount
			}
			number, err := home.GetNetNsIdByFd(fd)
			unix.Close(fd)
			if err == nil && number >= 0 && mounted[number] == "" { // without a number it has no link's other end
				mounted[number] = path
			}
		}
		return nil
	})
	return mounted, err
}

// namespacePaths are the mount points of network namespaces, in order.
func namespacePaths(mountinfo string) (paths []string) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[3], "net:[") {
			paths = append(paths, unescape.Replace(fields[4]))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// unescape takes back what the kernel does to a path that a field cannot hold.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Peer finds the pod's end of a veth by the name of the host's end. The error wraps ErrGone if there is no such link: a
// veth ends with the namespace of either end.
func (m Mounted) Peer(host string) (p Peer, err error) {
	var index int
	err = visit("", Place{}, func(home *handle) error {
		l, err := home.link(host)
		if errors.Is(err, errNoLink) {
			return fmt.Errorf("veth %s %w", host, ErrGone)
		}
		if err != nil {
			return err
		}
		a := l.Attrs()
		p.Alias, p.Path, index = a.Alias, m[a.NetNsID], a.ParentIndex
		if !isVeth(l) || p.Path == "" {
			return fmt.Errorf("link %s, a %s, has no other end in a network namespace that is mounted", host, l.Type())
		}
		return nil
	})
	if err != nil {
		return p, err
	}
	err = visit(p.Path, Place{}, func(h *handle) error {
		l, err := h.LinkByIndex(index)
		if err != nil {
			return fmt.Errorf("find the other end of veth %s: %w", host, err)
		}
		p.Name = l.Attrs().Name
		return nil
	})
	return p, err
}
