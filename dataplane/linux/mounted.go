package linux

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

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
