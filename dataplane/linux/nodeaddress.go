package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NodeAddresses returns the addresses that the links of the agent's namespace have, with the name of the link.
// Addresses that other machines cannot have, loopback and link-local ones, are left out, as are addresses of links in a
// VRF: packets of pods are not routed there. If the addresses changed meanwhile, the error is [ErrChanging], and the
// result may lack some.
func NodeAddresses() (map[netip.Addr]string, error) {
	var found map[netip.Addr]string
	err := withHandle(func(h *handle) (err error) {
		for range dumpTries {
			if found, err = nodeAddresses(h); !errors.Is(err, netlink.ErrDumpInterrupted) {
				return err
			}
		}
		return ErrChanging
	})
	return found, err
}

// ErrChanging means that the addresses of the node changed while they were read.
var ErrChanging = errors.New("the node's addresses changed while they were read")

// dumpTries bounds the repeats of a dump that changes interrupt.
const dumpTries = 3

func nodeAddresses(h *handle) (map[netip.Addr]string, error) {
	links, err := h.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list links: %w", err)
	}
	list, addrErr := h.AddrList(nil, netlink.FAMILY_ALL)
	if addrErr != nil && !errors.Is(addrErr, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list addresses: %w", addrErr)
	}
	names := namesOutsideVRFs(links)
	found := make(map[netip.Addr]string, len(list))
	for _, a := range list {
		address := prefixOf(a.IPNet).Addr()
		name, known := names[a.LinkIndex]
		if !known || !address.IsValid() || address.IsLoopback() || address.IsLinkLocalUnicast() ||
			address.IsMulticast() {
			continue
		}
		found[address] = name
	}
	return found, errors.Join(err, addrErr)
}

// namesOutsideVRFs returns the names of links by index.
func namesOutsideVRFs(links []netlink.Link) map[int]string {
	vrfs := make(map[int]bool)
	for _, l := range links {
		if l.Type() == (&netlink.Vrf{}).Type() {
			vrfs[l.Attrs().Index] = true
		}
	}
	names := make(map[int]string, len(links))
	for _, l := range links {
		if a := l.Attrs(); !vrfs[a.Index] && !vrfs[a.MasterIndex] {
			names[a.Index] = a.Name
		}
	}
	return names
}

// addressGroups are the kernel's notifications of added and deleted addresses.
const addressGroups = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR

// WatchNodeAddresses calls notify when addresses of the agent's namespace changed, until ctx ends, and once at the
// begin. notify must not block. The error is nil if ctx ended. After another error changes are unknown until the next
// call.
func WatchNodeAddresses(ctx context.Context, notify func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "netlink")
	defer socket.Close()
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: addressGroups}); err != nil {
		return fmt.Errorf("subscribe to changes of addresses: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })()
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	notify()
	data := make([]byte, largestRead)
	for {
		var received error
		err := raw.Read(func(fd uintptr) bool {
			_, _, _, _, received = unix.Recvmsg(int(fd), data, nil, 0)
			return !errors.Is(received, unix.EAGAIN)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("receive changes of addresses: %w", err)
		case received != nil && !errors.Is(received, unix.ENOBUFS) && !errors.Is(received, unix.EINTR):
			return fmt.Errorf("receive changes of addresses: %w", received)
		}
		notify() // also if the kernel dropped notifications: all addresses are read again
	}
}
