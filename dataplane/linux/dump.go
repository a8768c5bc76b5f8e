package linux

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Bounds of a dump in the namespace of a pod: its programs may add any number of objects there. The library would read
// them all, for each object that is looked for. These dumps have the kernel filter by link and table, and end at a
// bound.
const (
	maxDumped = 4096
	dumpLimit = 2 * time.Second
	// untimed is the number of objects for which a dump may take any time: a busy machine delays the dump of every pod.
	untimed = 256
)

// errOverfull means that a pod has more objects on a link, or in a table, than a dump reads.
var errOverfull = errors.New("more objects in the pod's network namespace than the agent reads")

// dumpEach calls f for each object that the kernel returns for a request, on the thread's namespace.
func dumpEach(request int, data []nl.NetlinkRequestData, f func(object []byte) error) error {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer s.Close() // ends the dump
	// A kernel without it returns all objects, which count.
	_ = unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	limit := unix.NsecToTimeval(dumpLimit.Nanoseconds())
	if err := s.SetReceiveTimeout(&limit); err != nil {
		return fmt.Errorf("set timeout of netlink: %w", err)
	}
	req := nl.NewNetlinkRequest(request, unix.NLM_F_DUMP)
	for _, d := range data {
		req.AddData(d)
	}
	if err := s.Send(req); err != nil {
		return err
	}
	d := dump{socket: s, sequence: req.Seq, began: time.Now(), each: f}
	for !d.done {
		if err := d.receive(); err != nil {
			return err
		}
	}
	if d.interrupted {
		return netlink.ErrDumpInterrupted
	}
	return nil
}

// dump is the state of dumpEach.
type dump struct {
	socket            *nl.NetlinkSocket
	sequence          uint32
	began             time.Time
	objects           int
	interrupted, done bool
	each              func([]byte) error
}

// receive handles the objects of one read.
func (d *dump) receive() error {
	messages, from, err := d.socket.Receive()
	if err != nil {
		return err
	}
	if from.Pid != nl.PidKernel {
		return nil
	}
	for _, m := range messages {
		if m.Header.Seq != d.sequence {
			continue
		}
		if err := d.handle(m); err != nil || d.done {
			return err
		}
	}
	return nil
}

func (d *dump) handle(m syscall.NetlinkMessage) error {
	d.interrupted = d.interrupted || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
	switch m.Header.Type {
	case unix.NLMSG_DONE, unix.NLMSG_ERROR:
		d.done = true
		return endOf(m.Data)
	}
	d.objects++
	if d.objects > maxDumped {
		return fmt.Errorf("%w: more than %d", errOverfull, maxDumped)
	}
	if took := time.Since(d.began); d.objects > untimed && took > dumpLimit {
		return fmt.Errorf("%w: %d in %s", errOverfull, d.objects, took)
	}
	return d.each(m.Data)
}

// endOf returns the error of the last message of a dump. A table without routes does not exist.
func endOf(data []byte) error {
	if len(data) < 4 {
		return nil
	}
	errno := unix.Errno(-int32(nl.NativeEndian().Uint32(data)))
	if errno == 0 || errno == unix.ENOENT {
		return nil
	}
	return errno
}

// maxTries bounds the attempts of a dump.
const maxTries = 10

// retryDump repeats a dump that was interrupted by a change of the dumped objects or by a signal.
func retryDump[T any](list func() (T, error)) (found T, err error) {
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

// socket is a netlink socket. It repeats interrupted dumps, and bounds the dumps of a pod.
type socket struct {
	*netlink.Handle
	ofPod    bool  // dumps are bounded
	overfull error // of an earlier dump
}

func (s *socket) LinkList() ([]netlink.Link, error) { return retryDump(s.Handle.LinkList) }

func (s *socket) LinkByIndex(index int) (netlink.Link, error) {
	return retryDump(func() (netlink.Link, error) { return s.Handle.LinkByIndex(index) })
}

func (s *socket) LinkByName(name string) (netlink.Link, error) {
	return retryDump(func() (netlink.Link, error) { return s.Handle.LinkByName(name) })
}

func (s *socket) AddrList(l netlink.Link, family int) ([]netlink.Addr, error) {
	return retryDump(func() ([]netlink.Addr, error) {
		if s.ofPod {
			return s.podAddresses(l, family)
		}
		return s.Handle.AddrList(l, family)
	})
}

func (s *socket) NeighList(index, family int) ([]netlink.Neigh, error) {
	return retryDump(func() ([]netlink.Neigh, error) {
		if s.ofPod {
			return s.podNeighbours(index, family)
		}
		return s.Handle.NeighList(index, family)
	})
}

func (s *socket) RouteListFiltered(family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error) {
	return retryDump(func() ([]netlink.Route, error) {
		if s.ofPod {
			return s.podRoutes(family, filter, mask)
		}
		return s.Handle.RouteListFiltered(family, filter, mask)
	})
}

func (s *socket) RuleList(family int) ([]netlink.Rule, error) {
	return retryDump(func() ([]netlink.Rule, error) {
		if s.ofPod {
			if err := s.countRules(family); err != nil {
				return nil, err
			}
		}
		return s.Handle.RuleList(family)
	})
}

// bounded runs a dump, unless an earlier one of this visit to the namespace ended at a bound.
func (s *socket) bounded(dump func() error) error {
	if s.overfull != nil {
		return s.overfull
	}
	err := dump()
	if errors.Is(err, errOverfull) {
		s.overfull = err
	}
	return err
}

// podAddresses lists the addresses of a link of a pod.
func (s *socket) podAddresses(l netlink.Link, family int) (found []netlink.Addr, err error) {
	request := nl.NewIfAddrmsg(family)
	request.Index = uint32(l.Attrs().Index)
	err = s.bounded(func() error {
		return dumpEach(unix.RTM_GETADDR, []nl.NetlinkRequestData{request}, func(object []byte) error {
			a, err := addressFrom(object)
			if err == nil && a.LinkIndex == l.Attrs().Index {
				found = append(found, a)
			}
			return err
		})
	})
	return found, err
}

// addressFrom decodes an address: for a pair of IPv4 addresses the local one.
func addressFrom(object []byte) (netlink.Addr, error) {
	header := nl.DeserializeIfAddrmsg(object)
	attributes, err := nl.ParseRouteAttr(object[header.Len():])
	if err != nil {
		return netlink.Addr{}, err
	}
	a := netlink.Addr{LinkIndex: int(header.Index), Scope: int(header.Scope)}
	var ip, local net.IP
	for _, attribute := range attributes {
		switch attribute.Attr.Type {
		case unix.IFA_ADDRESS:
			ip = attribute.Value
		case unix.IFA_LOCAL:
			local = attribute.Value
		}
	}
	if local != nil {
		ip = local
	}
	a.IPNet = &net.IPNet{IP: ip, Mask: net.CIDRMask(int(header.Prefixlen), 8*len(ip))}
	return a, nil
}

// podNeighbours lists the neighbours of a link of a pod.
func (s *socket) podNeighbours(index, family int) (found []netlink.Neigh, err error) {
	request := []nl.NetlinkRequestData{
		&netlink.Ndmsg{Family: uint8(family)}, nl.NewRtAttr(unix.NDA_IFINDEX, nl.Uint32Attr(uint32(index))),
	}
	err = s.bounded(func() error {
		return dumpEach(unix.RTM_GETNEIGH, request, func(object []byte) error {
			n, err := netlink.NeighDeserialize(object)
			if err == nil && n.LinkIndex == index {
				found = append(found, *n)
			}
			return err
		})
	})
	return found, err
}

// podRoutes lists routes of a pod, in the main table unless the filter has another one.
func (s *socket) podRoutes(families int, filter *netlink.Route, mask uint64) (found []netlink.Route, err error) {
	wanted := *filter
	if mask&netlink.RT_FILTER_TABLE == 0 {
		wanted.Table = unix.RT_TABLE_MAIN
	}
	err = s.bounded(func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			if families != netlink.FAMILY_ALL && families != family {
				continue
			}
			err := dumpEach(unix.RTM_GETROUTE, routeRequest(family, wanted, mask), func(object []byte) error {
				r, err := routeFrom(object)
				if err == nil && isWanted(r, wanted, mask) {
					found = append(found, r)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// routeRequest has the fields that the kernel filters by.
func routeRequest(family int, wanted netlink.Route, mask uint64) []nl.NetlinkRequestData {
	header := &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}}
	request := []nl.NetlinkRequestData{header, nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(uint32(wanted.Table)))}
	if mask&netlink.RT_FILTER_PROTOCOL != 0 {
		header.Protocol = uint8(wanted.Protocol)
	}
	if mask&netlink.RT_FILTER_OIF != 0 {
		request = append(request, nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(wanted.LinkIndex))))
	}
	return request
}

// isWanted filters destinations, and the fields that a kernel without strict checking ignores.
func isWanted(r, wanted netlink.Route, mask uint64) bool {
	switch {
	case r.Flags&unix.RTM_F_CLONED != 0, r.Table != wanted.Table:
		return false
	case mask&netlink.RT_FILTER_PROTOCOL != 0 && r.Protocol != wanted.Protocol:
		return false
	case mask&netlink.RT_FILTER_OIF != 0 && r.LinkIndex != wanted.LinkIndex:
		return false
	case mask&netlink.RT_FILTER_DST != 0 && prefixOf(r.Dst) != prefixOf(wanted.Dst):
		return false
	}
	return true
}

// routeFrom decodes what Weft's routes have.
func routeFrom(object []byte) (netlink.Route, error) {
	header := nl.DeserializeRtMsg(object)
	attributes, err := nl.ParseRouteAttr(object[header.Len():])
	if err != nil {
		return netlink.Route{}, err
	}
	r := netlink.Route{
		Family:   int(header.Family),
		Table:    int(header.Table),
		Protocol: netlink.RouteProtocol(header.Protocol),
		Scope:    netlink.Scope(header.Scope),
		Type:     int(header.Type), Tos: int(header.Tos), Flags: int(header.Flags),
	}
	for _, attribute := range attributes {
		switch attribute.Attr.Type {
		case unix.RTA_DST:
			r.Dst = &net.IPNet{IP: attribute.Value, Mask: net.CIDRMask(int(header.Dst_len), 8*len(attribute.Value))}
		case unix.RTA_GATEWAY:
			r.Gw = attribute.Value
		case unix.RTA_PREFSRC:
			r.Src = attribute.Value
		case unix.RTA_OIF:
			r.LinkIndex = int(nl.NativeEndian().Uint32(attribute.Value))
		case unix.RTA_TABLE:
			r.Table = int(nl.NativeEndian().Uint32(attribute.Value))
		case unix.RTA_PRIORITY:
			r.Priority = int(nl.NativeEndian().Uint32(attribute.Value))
		case unix.RTA_METRICS:
			r.MTU, err = mtuFrom(attribute.Value)
		}
	}
	return r, err
}

func mtuFrom(metrics []byte) (mtu int, err error) {
	attributes, err := nl.ParseRouteAttr(metrics)
	for _, metric := range attributes {
		if metric.Attr.Type == unix.RTAX_MTU {
			mtu = int(nl.NativeEndian().Uint32(metric.Value))
		}
	}
	return mtu, err
}

// countRules rejects a pod with more rules than the library should list.
func (s *socket) countRules(family int) error {
	return s.bounded(func() error {
		return dumpEach(unix.RTM_GETRULE, []nl.NetlinkRequestData{&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}}},
			func([]byte) error { return nil })
	})
}
