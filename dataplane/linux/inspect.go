package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
)

// HasNamespaces reports whether at least one namespace is mounted in a directory.
func HasNamespaces(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		var fs unix.Statfs_t
		return unix.Statfs(filepath.Join(dir, e.Name()), &fs) == nil && fs.Type == unix.NSFS_MAGIC
	})
}

// LinkAlias reads the alias of a link in the namespace at path, or in the agent's own for an empty path. The error
// wraps ErrGone if the namespace is deleted.
func LinkAlias(path, name string) (alias string, exists bool, err error) {
	err = inNamespace(path, netnsID{}, func(h *handle) error {
		l, err := h.link(name)
		if errors.Is(err, errNoLink) {
			return nil
		}
		if err == nil {
			alias = l.Attrs().Alias
			exists = true
		}
		return err
	})
	return alias, exists, err
}

func isTap(l netlink.Link) bool { return l.Type() == (&netlink.Tuntap{}).Type() }

func isVeth(l netlink.Link) bool { return l.Type() == (&netlink.Veth{}).Type() }

// LinkState describes a link and its namespace.
type LinkState struct {
	Inode, Device uint64 // of the namespace
	Alias         string // ifalias, which names the owner; may be empty
	Tap           bool   // Linux end of a tap
	Veth          bool   // end of a veth
	MAC           netaddr.MAC
	MTU           int
	Addresses     []netip.Prefix // without link-local addresses
}

// InspectLink reads a link in the namespace at path. The error wraps ErrGone only if the namespace is deleted.
func InspectLink(path, name string) (s LinkState, err error) {
	s.Inode, s.Device, err = InspectNamespace(path)
	if err != nil {
		return s, err
	}
	err = inNamespace(path, netnsID{s.Inode, s.Device}, func(h *handle) error {
		l, err := h.link(name)
		if err != nil {
			return err
		}
		a := l.Attrs()
		s.Alias = a.Alias
		s.Tap = isTap(l)
		s.Veth = isVeth(l)
		s.MTU = a.MTU
		s.MAC = macOf(l)
		s.Addresses, err = addressesOf(h, l)
		return err
	})
	return s, err
}

// addressesOf lists the addresses of a link without link-local ones.
func addressesOf(h *handle, l netlink.Link) ([]netip.Prefix, error) {
	list, err := h.AddrList(l, netlink.FAMILY_ALL)
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

// LinkByAddress finds the link in the agent's namespace that has an address.
func LinkByAddress(address netip.Addr) (name string, mtu int, err error) {
	err = withHandle(func(h *handle) error {
		links, err := h.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			has, err := addressesOf(h, l)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(has, func(p netip.Prefix) bool { return p.Addr() == address }) {
				name = l.Attrs().Name
				mtu = l.Attrs().MTU
				return nil
			}
		}
		return fmt.Errorf("no link of the node has address %s", address)
	})
	return name, mtu, err
}

// VXLANDevice is a VXLAN device of the kernel.
type VXLANDevice struct {
	Name   string
	VNI    uint32
	AnyVNI bool // programs choose the VNI of each packet
}

// VXLANDevices lists the VXLAN devices of the caller's namespace that receive on a UDP port.
func VXLANDevices(port uint16) (devices []VXLANDevice, err error) {
	err = withHandle(func(h *handle) error {
		links, err := h.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if v, is := l.(*netlink.Vxlan); is && v.Port == int(port) {
				devices = append(devices, VXLANDevice{Name: v.Name, VNI: uint32(v.VxlanId), AnyVNI: v.FlowBased})
			}
		}
		return nil
	})
	return devices, err
}

// Peer is the pod's end of a veth.
type Peer struct {
	Path  string // of its network namespace
	Name  string
	Alias string // of the host's end; names the owner, may be empty
}

// Mounted has the paths of mounted network namespaces by their nsid in the agent's namespace (ip-netns(8)).
type Mounted map[int]string

// FindMounted finds the mounted network namespaces. A namespace with several paths gets the first in lexical order.
func FindMounted() (Mounted, error) {
	raw, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	paths := namespacePaths(string(raw))
	mounted := Mounted{}
	err = withHandle(func(agentNS *handle) error {
		for _, path := range paths {
			fd, _, err := open(path)
			if err != nil {
				continue // unmounted meanwhile, or hidden below another mount
			}
			number, err := agentNS.GetNetNsIdByFd(fd)
			unix.Close(fd)
			if err == nil && number >= 0 && mounted[number] == "" { // a namespace without an nsid has no peer of a link
				mounted[number] = path
			}
		}
		return nil
	})
	return mounted, err
}

// namespacePaths returns the sorted mount points of network namespaces.
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

// unescape decodes the kernel's escapes in mount points.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Peer finds the pod's end of a veth by the name of the host's end. The error wraps ErrGone if the host's end does not
// exist: a veth is deleted with the namespace of either end.
func (m Mounted) Peer(host string) (p Peer, err error) {
	var index int
	err = withHandle(func(agentNS *handle) error {
		l, err := agentNS.link(host)
		if errors.Is(err, errNoLink) {
			return fmt.Errorf("veth %s %w", host, ErrGone)
		}
		if err != nil {
			return err
		}
		a := l.Attrs()
		p.Alias = a.Alias
		p.Path = m[a.NetNsID]
		index = a.ParentIndex
		if !isVeth(l) || p.Path == "" {
			return fmt.Errorf("link %s of type %s has no peer in a mounted network namespace", host, l.Type())
		}
		return nil
	})
	if err != nil {
		return p, err
	}
	err = inNamespace(p.Path, netnsID{}, func(h *handle) error {
		l, err := h.LinkByIndex(index)
		if err != nil {
			return fmt.Errorf("find peer of veth %s: %w", host, err)
		}
		p.Name = l.Attrs().Name
		return nil
	})
	return p, err
}
