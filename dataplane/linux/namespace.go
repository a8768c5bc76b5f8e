// Package linux applies desired values to the node's kernel: objects in network namespaces, and files.
//
// A namespace is open during one batch only: an open socket or descriptor would keep it alive after its pod.
package linux

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netns"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

const (
	// socketLimit bounds the wait for the kernel's reply to one request.
	socketLimit = 5 * time.Second
)

// ErrGone means that a path does not lead to a network namespace, or leads to another one than before.
var ErrGone = errors.New("is gone")

// ErrHost means that a path leads to the agent's network namespace.
var ErrHost = errors.New("is the host's own")

// netnsID identifies a network namespace. The zero value is the agent's own.
type netnsID struct {
	Inode  uint64
	Device uint64
}

// InspectNamespace returns the identity of the network namespace at path. It returns an error for anything else, and
// ErrHost for the agent's own namespace.
func InspectNamespace(path string) (inode, device uint64, err error) {
	fd, id, err := open(path)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)
	var own unix.Stat_t
	if err := unix.Stat(netns.Own, &own); err != nil {
		return 0, 0, fmt.Errorf("stat the agent's network namespace: %w", err)
	}
	if id == (netnsID{own.Ino, own.Dev}) {
		return 0, 0, fmt.Errorf("network namespace %s %w", path, ErrHost)
	}
	return id.Inode, id.Device, nil
}

// open opens a path that must lead to a network namespace.
func open(path string) (fd int, netns netnsID, err error) {
	// O_NONBLOCK: a FIFO at this path must not block the agent.
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ESRCH) {
		return 0, netnsID{}, fmt.Errorf("network namespace %s %w: %w", path, ErrGone, err)
	}
	if err != nil {
		return 0, netnsID{}, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	netns, err = identify(fd)
	if err != nil {
		unix.Close(fd)
		return 0, netnsID{}, fmt.Errorf("%s is not a network namespace, which %w: %w", path, ErrGone, err)
	}
	return fd, netns, nil
}

func identify(fd int) (netnsID, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return netnsID{}, err
	}
	if fs.Type != unix.NSFS_MAGIC {
		return netnsID{}, fmt.Errorf("file system of type %#x", fs.Type)
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil {
		return netnsID{}, err
	}
	if kind != unix.CLONE_NEWNET {
		return netnsID{}, fmt.Errorf("namespace of type %#x", kind)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return netnsID{}, err
	}
	return netnsID{st.Ino, st.Dev}, nil
}

// inNamespace runs f with a netlink socket of the namespace at path, on a thread in that namespace. An empty path is
// the agent's own. want is the expected namespace, zero for any. ErrGone means that f was not run.
func inNamespace(path string, want netnsID, f func(*handle) error) error {
	if path == "" {
		return withHandle(f)
	}
	fd, id, err := open(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if want != (netnsID{}) && id != want {
		return fmt.Errorf("network namespace %s %w: another one has taken its path", path, ErrGone)
	}
	inPod := func(h *handle) error {
		h.ofPod = true
		return f(h)
	}
	return netns.Do(fd, func() error { return recovered(func() error { return withHandle(inPod) }) })
}

// recovered turns a panic into an error: no other function on this goroutine recovers it.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// withHandle runs f with a netlink socket of the calling thread's namespace.
func withHandle(f func(*handle) error) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	if err := h.SetSocketTimeout(socketLimit); err != nil {
		return fmt.Errorf("set timeout of netlink: %w", err)
	}
	s := &socket{Handle: h}
	return f(&handle{socket: s, links: map[string]netlink.Link{}, search: &linkSearch{socket: s}})
}

// refused marks an error of an operation without effect. It keeps the outcome of an error that has one. An operation in
// a deleted namespace is not retried.
func refused(err error) error {
	if err == nil || errors.As(err, new(*kvscheduler.OpError)) {
		return err
	}
	return &kvscheduler.OpError{Err: err, Outcome: kvscheduler.NotApplied, Permanent: errors.Is(err, ErrGone)}
}

// permanent marks an error of an operation without effect that a retry cannot fix.
func permanent(err error) error {
	return &kvscheduler.OpError{Err: err, Outcome: kvscheduler.NotApplied, Permanent: true}
}

// namespaceDescriptor describes namespaces, which container runtimes make: Create checks a namespace, Delete does
// nothing.
func namespaceDescriptor() kvscheduler.Descriptor[wire.Namespace, netnsID] {
	return kvscheduler.Descriptor[wire.Namespace, netnsID]{
		Name: wire.KindNamespace, Lane: Lane,
		Equal:    equal[wire.Namespace],
		Validate: validateNamespace,
		Recreate: always[wire.Namespace],
		Backend: simple[wire.Namespace, netnsID]{
			kind: wire.KindNamespace,
			create: func(it *kvscheduler.Item[wire.Namespace, netnsID]) error {
				it.NewMeta = netnsID{it.Want.Inode, it.Want.Device}
				return refused(check(it.Want))
			},
			remove: func(context.Context, *kvscheduler.Item[wire.Namespace, netnsID]) error { return nil },
			read:   readNamespace,
		},
	}
}

func validateNamespace(name string, v wire.Namespace) error {
	switch {
	case !filepath.IsAbs(v.Path) || filepath.Clean(v.Path) != v.Path:
		return fmt.Errorf("path %q is not absolute and clean", v.Path)
	case name != v.Path:
		return fmt.Errorf("name %q is not the path %s", name, v.Path)
	case v.Inode == 0:
		return errors.New("inode is missing")
	}
	return nil
}

// check returns ErrGone unless the path still leads to the same namespace.
func check(v wire.Namespace) error {
	fd, netns, err := open(v.Path)
	if err != nil {
		return err
	}
	unix.Close(fd)
	if netns != (netnsID{v.Inode, v.Device}) {
		return fmt.Errorf("network namespace %s %w: another one has taken its path (inode %d, was %d)", v.Path, ErrGone,
			netns.Inode, v.Inode)
	}
	return nil
}

// readNamespace finds a known namespace that has not changed.
func readNamespace(view kvscheduler.View, name string) (v wire.Namespace, netns netnsID, found bool, err error) {
	for _, v := range knownValues[wire.Namespace](view, wire.KindNamespace, name) {
		if err := check(v); !errors.Is(err, ErrGone) {
			return v, netnsID{v.Inode, v.Device}, err == nil, err
		}
	}
	return v, netns, false, nil
}

// knownNamespace returns the namespace that known values have for a path; false without such a value, or if the
// namespace has changed.
func knownNamespace(view kvscheduler.View, path string) (netnsID, bool) {
	if path == "" {
		return netnsID{}, true
	}
	for _, v := range knownValues[wire.Namespace](view, wire.KindNamespace, path) {
		if check(v) == nil {
			return netnsID{v.Inode, v.Device}, true
		}
	}
	return netnsID{}, false
}

// handle is a netlink socket in a namespace. Its thread is in that namespace, too, for access to /proc/sys.
type handle struct {
	*socket
	links  map[string]netlink.Link
	search *linkSearch
}

// errNoLink means that a link does not exist.
var errNoLink = errors.New("no such link")

// undoAdd deletes a link that could not be configured because of err.
func (h *handle) undoAdd(l netlink.Link, err error) error {
	if undo := h.LinkDel(l); undo != nil && !isGone(undo) {
		return fmt.Errorf("%w, and removing it again: %w", err, undo)
	}
	return refused(err)
}

// link finds a link by name and remembers it until the handle is closed.
func (h *handle) link(name string) (netlink.Link, error) {
	if l, ok := h.links[name]; ok {
		return l, nil
	}
	l, err := h.LinkByName(name)
	// it is an alternative name of another link
	if errors.As(err, new(netlink.LinkNotFoundError)) || err == nil && l.Attrs().Name != name {
		return nil, fmt.Errorf("link %s: %w", name, errNoLink)
	}
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	h.links[name] = l
	return l, nil
}

// deleted returns the error of the deletion of an object; nil if the object does not exist.
func deleted(object string, err error) error {
	if err == nil || isGone(err) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", object, err)
}

// isGone reports whether an error says that the object does not exist.
func isGone(err error) bool {
	for _, gone := range []error{
		errNoLink, ErrGone, unix.ENODEV, unix.ENOENT, unix.ESRCH, unix.EADDRNOTAVAIL, unix.ENXIO,
	} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
