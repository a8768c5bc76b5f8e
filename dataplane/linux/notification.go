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

// Notification is the kernel's notification that a link, an address or a route was deleted, that a link was set down,
// or that the node or a link of it does not forward any more.
type Notification struct {
	Namespace  string // path; "" is the agent's own
	Link       string // "": any link of the namespace
	Forwarding bool   // forwarding is off in the agent's namespace, at least for one link
	Rules      bool   // rules of a table of Weft were deleted in the agent's namespace
	Lost       bool   // the kernel dropped notifications: anything may have changed
}

// Subscription receives the kernel's notifications of the agent's network namespace and of followed ones. It has one
// socket in the agent's namespace (NETLINK_LISTEN_ALL_NSID of netlink(7)): a socket in a pod's namespace would keep
// that alive after its pod.
type Subscription struct {
	socket *os.File

	mu    sync.Mutex
	paths map[int32]string // of the followed namespaces, by their nsid in the agent's namespace
}

const (
	notifyingGroups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE |
		unix.RTMGRP_IPV6_ROUTE |
		1<<(unix.RTNLGRP_IPV4_NETCONF-1) | 1<<(unix.RTNLGRP_IPV6_NETCONF-1)
	// notificationBuffer holds some 10,000 notifications.
	notificationBuffer = 8 << 20
	largestRead        = 64 << 10
	// readRate and readBurst bound the notifications that are read, since a pod can cause any number. The kernel then
	// drops notifications and reports that (ENOBUFS).
	readRate  = 5000 // a second
	readBurst = 10000
)

// Subscribe opens the socket. It needs CAP_NET_BROADCAST.
func Subscribe() (*Subscription, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	// with a smaller buffer, the kernel drops notifications earlier
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, notificationBuffer)
	err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: notifyingGroups})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("subscribe to netlink notifications of all network namespaces: %w", err)
	}
	return &Subscription{socket: os.NewFile(uintptr(fd), "netlink"), paths: make(map[int32]string)}, nil
}

// Follow reports changes of the namespace at path from now on. It keeps neither the namespace nor its path open.
func (n *Subscription) Follow(path string) error {
	fd, _, err := open(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	id, err := nsidOf(fd)
	if err != nil {
		return fmt.Errorf("nsid of network namespace %s: %w", path, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paths[int32(id)] = path
	return nil
}

// nsidOf returns the nsid of a namespace in the agent's namespace. It lets the kernel assign one if needed.
func nsidOf(fd int) (id int, err error) {
	err = withHandle(func(h *handle) error {
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

// Forget reverts Follow.
func (n *Subscription) Forget(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, p := range n.paths {
		if p == path {
			delete(n.paths, id)
		}
	}
}

// Run calls notify for each notification until ctx ends, and closes the socket. notify must not block.
func (n *Subscription) Run(ctx context.Context, notify func(Notification)) error {
	defer n.socket.Close()
	stop := context.AfterFunc(ctx, func() { _ = n.socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := n.socket.SyscallConn()
	if err != nil {
		return err
	}
	data := make([]byte, largestRead)
	control := make([]byte, 256)
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
			notify(Notification{Lost: true})
		case errors.Is(received, unix.EINTR):
		case received != nil:
			return fmt.Errorf("receive netlink notifications: %w", received)
		default:
			n.deliver(data[:size], control[:controlSize], notify)
		}
	}
}

// deliver calls notify for the messages of one read, which are from one namespace.
func (n *Subscription) deliver(data, control []byte, notify func(Notification)) {
	path := ""
	own := true
	if id, foreign := senderOf(control); foreign {
		n.mu.Lock()
		known, follows := n.paths[id]
		n.mu.Unlock()
		if !follows {
			return
		}
		path = known
		own = false
	}
	messages, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		notify(Notification{Namespace: path, Lost: own})
		return
	}
	for _, m := range messages {
		if own && isForwardingOff(m) {
			notify(Notification{Forwarding: true})
			continue
		}
		index, name, isLoss := readNotification(m)
		switch {
		case !isLoss:
		case !own:
			notify(Notification{Namespace: path}) // a pod has few links
		case name != "":
			notify(Notification{Link: name})
		default:
			if i, err := net.InterfaceByIndex(index); err == nil { // a deleted link has a notification with its name
				notify(Notification{Link: i.Name})
			}
		}
	}
}

// senderOf returns the nsid of the sending namespace; foreign is false for the agent's own.
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

// readNotification returns the link of a message, by name or else by index. isLoss is false for messages that
// Notification does not cover.
func readNotification(m syscall.NetlinkMessage) (index int, name string, isLoss bool) {
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

// netconfForwarding is an attribute of messages about the settings of a link or of all links (linux/netconf.h).
const netconfForwarding = 2

// isForwardingOff reports whether a message says that a link forwards no packets any more, or that none does.
func isForwardingOff(m syscall.NetlinkMessage) bool {
	const header = 4 // netconfmsg, aligned
	if m.Header.Type != unix.RTM_NEWNETCONF || len(m.Data) < header {
		return false
	}
	for _, a := range attributes(m.Data[header:]) {
		if a.Attr.Type == netconfForwarding && len(a.Value) >= 4 {
			return binary.NativeEndian.Uint32(a.Value) == 0
		}
	}
	return false
}

// readLink reads a message of a link that was deleted or set down. The message of a new link, which is down, does not
// count.
func readLink(m syscall.NetlinkMessage) (index int, name string, isLoss bool) {
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
