package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// Change is a notification of the kernel: a link, an address or a route was deleted, or a link was set down.
type Change struct {
	Namespace string // path; "" is the agent's own
	Link      string // "": any link of the namespace
	Lost      bool   // notifications were lost: anything may have changed
}

// Notifications are the kernel's, of the agent's own network namespace and of those that are followed. One socket receives all
// (NETLINK_LISTEN_ALL_NSID of netlink(7)), since a socket in the namespace of a pod would keep that alive after its pod.
type Notifications struct {
	socket *os.File

	mu    sync.Mutex
	paths map[int32]string // of the followed namespaces, by the number that the agent's own knows them by
}

const (
	notifyingGroups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE
	// notificationBuffer holds some 10,000 notifications.
	notificationBuffer = 8 << 20
	largestRead        = 64 << 10
	// readRate and readBurst bound the notifications that are read, since a pod can cause any number. The kernel then drops others,
	// and tells that it did.
	readRate  = 5000 // a second
	readBurst = 10000
)

// Notify opens the socket. It needs CAP_NET_BROADCAST.
func Notify() (*Notifications, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, notificationBuffer) // a smaller one loses notifications earlier, which it tells
	err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: notifyingGroups})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("subscribe to netlink notifications of all network namespaces: %w", err)
	}
	return &Notifications{socket: os.NewFile(uintptr(fd), "netlink"), paths: make(map[int32]string)}, nil
}

// Follow reports changes of the namespace at path from now on. It keeps neither the namespace nor its path open.
func (n *Notifications) Follow(path string) error {
	fd, _, err := open(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	id, err := numberOf(fd)
	if err != nil {
		return fmt.Errorf("number of network namespace %s: %w", path, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paths[int32(id)] = path
	return nil
}

// numberOf returns the number that the agent's own namespace knows another one by, and has the kernel choose it first.
func numberOf(fd int) (id int, err error) {
	err = visit("", Place{}, func(h *handle) error {
		if id, err = h.GetNetNsIdByFd(fd); err != nil || id >= 0 {
			return err
		}
		if err := h.SetNetNsIdByFd(fd, -1); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		id, err = h.GetNetNsIdByFd(fd)
		return err
	})
	return id, err
}

// Forget ends what Follow began.
func (n *Notifications) Forget(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, p := range n.paths {
		if p == path {
			delete(n.paths, id)
		}
	}
}

// Run calls changed for each change until ctx ends, and closes the socket. It must not wait.
func (n *Notifications) Run(ctx context.Context, changed func(Change)) error {
	defer n.socket.Close()
	stop := context.AfterFunc(ctx, func() { _ = n.socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := n.socket.SyscallConn()
	if err != nil {
		return err
	}
	data, control := make([]byte, largestRead), make([]byte, 256)
	limit := rate.NewLimiter(readRate, readBurst)
	for {
		if err := limit.Wait(ctx); err != nil {
			return err
		}
		var size, controlSize int
		var received error
		err := raw.Read(func(fd uintptr) bool {
			size, controlSize, _, _, received = unix.Recvmsg(int(fd), data, control, 0)
			return !errors.Is(received, unix.EAGAIN)
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("receive netlink notifications: %w", err)
		case errors.Is(received, unix.ENOBUFS):
			changed(Change{Lost: true})
		case errors.Is(received, unix.EINTR):
		case received != nil:
			return fmt.Errorf("receive netlink notifications: %w", received)
		default:
			n.deliver(data[:size], control[:controlSize], changed)
		}
	}
}

// deliver calls changed for the messages of one read. All are of one namespace.
func (n *Notifications) deliver(data, control []byte, changed func(Change)) {
	path, own := "", true
	if id, foreign := senderOf(control); foreign {
		n.mu.Lock()
		known, follows := n.paths[id]
		n.mu.Unlock()
		if !follows {
			return
		}
		path, own = known, false
	}
	messages, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		changed(Change{Namespace: path, Lost: own})
		return
	}
	for _, m := range messages {
		index, name, harmful := readNotification(m)
		switch {
		case !harmful:
		case !own:
			changed(Change{Namespace: path}) // a pod has few links
		case name != "":
			changed(Change{Link: name})
		default:
			if i, err := net.InterfaceByIndex(index); err == nil { // of a link that is gone there is a notification by name
				changed(Change{Link: i.Name})
			}
		}
	}
}

// senderOf returns the number of the namespace that a notification is from; foreign is false for the agent's own.
func senderOf(control []byte) (id int32, foreign bool) {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for _, c := range list {
		if c.Header.Level == unix.SOL_NETLINK && c.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(c.Data) >= 4 {
			return int32(binary.NativeEndian.Uint32(c.Data)), true
		}
	}
	return 0, false
}

// readNotification returns the link that a message is about, by name or else by index, and whether it tells of something that is
// missing from now on.
func readNotification(m syscall.NetlinkMessage) (index int, name string, harmful bool) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return readLink(m)
	case unix.RTM_DELADDR:
		if len(m.Data) < unix.SizeofIfAddrmsg {
			return 0, "", false
		}
		return int(nl.DeserializeIfAddrmsg(m.Data).Index), "", true
	case unix.RTM_DELROUTE:
		if len(m.Data) < unix.SizeofRtMsg {
			return 0, "", false
		}
		route := nl.DeserializeRtMsg(m.Data)
		if route.Table != unix.RT_TABLE_MAIN || route.Flags&unix.RTM_F_CLONED != 0 {
			return 0, "", false
		}
		for _, a := range attributes(m.Data[unix.SizeofRtMsg:]) {
			if a.Attr.Type == unix.RTA_OIF && len(a.Value) >= 4 {
				return int(binary.NativeEndian.Uint32(a.Value)), "", true
			}
		}
	}
	return 0, "", false
}

// readLink reads that a link was deleted or set down. A link that is made is down at first, which is no change of its flags.
func readLink(m syscall.NetlinkMessage) (index int, name string, harmful bool) {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return 0, "", false
	}
	link := nl.DeserializeIfInfomsg(m.Data)
	wasSetDown := link.Change != ^uint32(0) && link.Change&unix.IFF_UP != 0 && link.Flags&unix.IFF_UP == 0
	if link.Family != unix.AF_UNSPEC || m.Header.Type == unix.RTM_NEWLINK && !wasSetDown {
		return 0, "", false
	}
	for _, a := range attributes(m.Data[unix.SizeofIfInfomsg:]) {
		if a.Attr.Type == unix.IFLA_IFNAME {
			name = nl.BytesToString(a.Value)
		}
	}
	return int(link.Index), name, true
}

func attributes(data []byte) []syscall.NetlinkRouteAttr {
	list, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil
	}
	return list
}
