package linux

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Bounds of the search for links of a pod: the nested namespaces, and the links in one visit to the pod.
const (
	maxNested   = 64
	maxSearched = 16384
)

// foundLink identifies a link wherever it is.
type foundLink struct{ alias, kind string }

// linkSearch finds links with an alias in the namespace of a socket and in those that it has an nsid of.
type linkSearch struct {
	*socket
	visited int                // links
	known   map[foundLink]bool // of the only search; nil: not searched yet
	err     error              // of the search: a link that was not found may be there
}

// finds reports whether a link is there. It searches once, and repeats the error of a search that failed.
func (s *linkSearch) finds(l foundLink) (bool, error) {
	if s.known == nil {
		s.known, s.err = s.all()
	}
	return s.known[l], s.err
}

func (s *linkSearch) all() (map[foundLink]bool, error) {
	found := make(map[foundLink]bool)
	nested, err := s.nsids()
	if err == nil {
		err = s.searchIn(nil, found)
	}
	for _, nsid := range nested {
		if err == nil {
			err = s.searchIn(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(nsid)), found)
		}
	}
	return found, err
}

// searchIn adds the links of a namespace. target is the attribute that selects it; nil: the socket's. A namespace that
// was deleted meanwhile has no links.
func (s *linkSearch) searchIn(target *nl.RtAttr, found map[foundLink]bool) error {
	request := []nl.NetlinkRequestData{nl.NewIfInfomsg(unix.AF_UNSPEC)}
	if target != nil {
		request = append(request, target)
	}
	_, err := retryDump(func() (none struct{}, err error) {
		return none, s.bounded(func() error {
			return dumpEach(unix.RTM_GETLINK, request, func(object []byte) error {
				if s.visited++; s.visited > maxSearched {
					return fmt.Errorf("%w: more than %d links in its network namespaces", errOverfull, maxSearched)
				}
				l, err := netlink.LinkDeserialize(nil, object)
				if err == nil && l.Attrs().Alias != "" {
					found[foundLink{l.Attrs().Alias, l.Type()}] = true
				}
				return err
			})
		})
	})
	if target != nil && errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// nsids lists the namespaces that the namespace of the socket knows, up to maxNested.
func (s *linkSearch) nsids() ([]uint32, error) {
	return retryDump(func() (list []uint32, err error) {
		err = s.bounded(func() error {
			return dumpEach(unix.RTM_GETNSID, []nl.NetlinkRequestData{nl.NewRtGenMsg()}, func(object []byte) error {
				attributes, err := nl.ParseRouteAttr(object[nl.NewRtGenMsg().Len():])
				for _, a := range attributes {
					if a.Attr.Type == netlink.NETNSA_NSID && len(list) < maxNested {
						list = append(list, nl.NativeEndian().Uint32(a.Value))
					}
				}
				return err
			})
		})
		return list, err
	})
}
