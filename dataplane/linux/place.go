// Package linux realises the desired values of the machine's kernel: what stands in network namespaces, and files.
//
// A namespace is opened for the time of one batch only: an open socket or descriptor would keep it alive after its pod.
package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

const (
	// threadNamespace is the agent's own wherever no visit is under way; that of the process is its first thread's, which may
	// visit.
	threadNamespace = "/proc/thread-self/ns/net"
	// socketLimit bounds the wait for the kernel's answer to one request.
	socketLimit = 5 * time.Second
)

// ErrGone means that a path leads to no network namespace, or to another one than it did.
var ErrGone = errors.New("is gone")

// ErrHost means that a path leads to the agent's own network namespace.
var ErrHost = errors.New("is the host's own")

// Place is a network namespace: what a path leads to. The zero Place is the agent's own.
type Place struct {
	Inode  uint64
	Device uint64
}

// Inspect tells what namespace a path leads to, opening it once. Anything but a network namespace other than the
// agent's own is an error.
func Inspect(path string) (inode, device uint64, err error) {
	fd, place, err := open(path)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)
	var own unix.Stat_t
	if err := unix.Stat(threadNamespace, &own); err != nil {
		return 0, 0, fmt.Errorf("look at own network namespace: %w", err)
	}
	if place == (Place{own.Ino, own.Dev}) {
		return 0, 0, fmt.Errorf("network namespace %s %w", path, ErrHost)
	}
	return place.Inode, place.Device, nil
}

// open opens a path that must lead to a network namespace.
func open(path string) (fd int, place Place, err error) {
	// A FIFO in the place of a namespace must not hold us up.
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ESRCH) {
		return 0, Place{}, fmt.Errorf("network namespace %s %w: %w", path, ErrGone, err)
	}
	if err != nil {
		return 0, Place{}, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	place, err = identify(fd)
	if err != nil {
		unix.Close(fd)
		return 0, Place{}, fmt.Errorf("%s is not a network namespace, which %w: %w", path, ErrGone, err)
	}
	return fd, place, nil
}

func identify(fd int) (Place, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return Place{}, err
	}
	if fs.Type != unix.NSFS_MAGIC {
		return Place{}, fmt.Errorf("file system of type %#x", fs.Type)
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil {
		return Place{}, err
	}
	if kind != unix.CLONE_NEWNET {
		return Place{}, fmt.Errorf("namespace of type %#x", kind)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Place{}, err
	}
	return Place{st.Ino, st.Dev}, nil
}

// visit runs f with a netlink socket of the namespace at path, on a thread inside it; an empty path is the agent's own.
// want is what the path led to before; the zero Place takes what there is. ErrGone means that f was not run.
func visit(path string, want Place, f func(*handle) error) error {
	if path == "" {
		return withHandle(f)
	}
	fd, place, err := open(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if want != (Place{}) && place != want {
		return fmt.Errorf("network namespace %s %w: another one has taken its path", path, ErrGone)
	}
	result := make(chan error, 1)
	go func() { result <- inside(fd, func() error { return withHandle(f) }) }()
	return <-result
}

// inside runs f in a namespace on the goroutine's thread. If the thread cannot be brought home, it stays locked and
// dies with the goroutine, so that no other goroutine runs in a foreign namespace.
func inside(fd int, f func() error) error {
	runtime.LockOSThread()
	own, err := os.Open(threadNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer own.Close()
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err = guard(f)
	if home := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); home == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// guard turns a panic into an error: no other function on this goroutine recovers it.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

func withHandle(f func(*handle) error) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	if err := h.SetSocketTimeout(socketLimit); err != nil {
		return fmt.Errorf("set time limit of netlink: %w", err)
	}
	return f(&handle{Handle: h, links: map[string]netlink.Link{}})
}

// refused says that the kernel changed nothing; a namespace that is gone does not come back. What an error says of its
// outcome already stays.
func refused(err error) error {
	if err == nil || errors.As(err, new(*kvscheduler.OpError)) {
		return err
	}
	return &kvscheduler.OpError{Err: err, Outcome: kvscheduler.NotApplied, Permanent: errors.Is(err, ErrGone)}
}

// permanent says that the kernel changed nothing and that trying again is in vain.
func permanent(err error) error {
	return &kvscheduler.OpError{Err: err, Outcome: kvscheduler.NotApplied, Permanent: true}
}

type namespaceItem = kvscheduler.Item[wire.Namespace, Place]

// namespaces are made by container runtimes: to create one is to find it as it was, to delete it is to forget it.
type namespaces struct{}

func namespaceDescriptor() kvscheduler.Descriptor[wire.Namespace, Place] {
	return kvscheduler.Descriptor[wire.Namespace, Place]{
		Name: wire.KindNamespace, Lane: Lane,
		Equal:    func(want, have wire.Namespace) bool { return want == have },
		Validate: validateNamespace,
		Recreate: func(have, want wire.Namespace) bool { return true },
		Backend:  namespaces{},
	}
}

func validateNamespace(name string, v wire.Namespace) error {
	switch {
	case !filepath.IsAbs(v.Path) || filepath.Clean(v.Path) != v.Path:
		return fmt.Errorf("path %q is not absolute and clean", v.Path)
	case name != v.Path:
		return fmt.Errorf("the name is the path, %s", v.Path)
	case v.Inode == 0:
		return errors.New("the inode is not known")
	}
	return nil
}

// Create looks whether the namespaces are what they were.
func (namespaces) Create(_ context.Context, batch []namespaceItem) {
	for i := range batch {
		it := &batch[i]
		it.NewMeta = Place{it.Want.Inode, it.Want.Device}
		it.Err = refused(check(it.Want))
	}
}

// check sees whether the path still leads where it did.
func check(v wire.Namespace) error {
	fd, place, err := open(v.Path)
	if err != nil {
		return err
	}
	unix.Close(fd)
	if place != (Place{v.Inode, v.Device}) {
		return fmt.Errorf("network namespace %s %w: another one has taken its path (inode %d, was %d)", v.Path, ErrGone, place.Inode, v.Inode)
	}
	return nil
}

// Update is never called: every difference recreates.
func (n namespaces) Update(ctx context.Context, batch []namespaceItem) { n.Create(ctx, batch) }

// Delete leaves the namespace to its owner.
func (namespaces) Delete(context.Context, []namespaceItem) {}

// Dump lists the known namespaces that are still what they were.
func (n namespaces) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Namespace, Place], error] {
	return func(yield func(kvscheduler.Actual[wire.Namespace, Place], error) bool) {
		for name := range view.All(wire.KindNamespace) {
			for _, v := range known[wire.Namespace](view, wire.KindNamespace, name) {
				err := check(v)
				if errors.Is(err, ErrGone) {
					continue
				}
				if !yield(kvscheduler.Actual[wire.Namespace, Place]{Name: name, V: v, Meta: Place{v.Inode, v.Device}}, err) {
					return
				}
				break
			}
		}
	}
}

// known are the values that an object has: the applied one first, then the desired one if it is another.
func known[V comparable](view kvscheduler.View, kind kvscheduler.Kind, name string) []V {
	var values []V
	ref := kvscheduler.Ref{Kind: kind, Name: name}
	if v, _, ok := view.Applied(ref); ok {
		if applied, is := v.(V); is {
			values = append(values, applied)
		}
	}
	if v, ok := view.Desired(ref); ok {
		if desired, is := v.(V); is && (len(values) == 0 || values[0] != desired) {
			values = append(values, desired)
		}
	}
	return values
}

// placeOf returns the namespace of a path by the applied values; false: it is not known.
func placeOf(view kvscheduler.View, path string) (Place, bool) {
	if path == "" {
		return Place{}, true
	}
	for _, v := range known[wire.Namespace](view, wire.KindNamespace, path) {
		if check(v) == nil {
			return Place{v.Inode, v.Device}, true
		}
	}
	return Place{}, false
}

// handle is a netlink socket in a namespace. Its thread is there too, for what netlink does not do.
type handle struct {
	*netlink.Handle
	links map[string]netlink.Link
}

// errNoLink means that a link is not there.
var errNoLink = errors.New("no such link")

// maxTries bounds how often a dump is tried that others' changes keep interrupting.
const maxTries = 10

// whole makes a dump and repeats it when it was interrupted: by a change of what is dumped, or by a signal.
func whole[T any](list func() (T, error)) (found T, err error) {
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

// link finds a link by name, once a visit.
func (h *handle) link(name string) (netlink.Link, error) {
	if l, ok := h.links[name]; ok {
		return l, nil
	}
	l, err := whole(func() (netlink.Link, error) { return h.LinkByName(name) })
	if errors.As(err, new(netlink.LinkNotFoundError)) || err == nil && l.Attrs().Name != name { // an alternative name is another's
		return nil, fmt.Errorf("link %s: %w", name, errNoLink)
	}
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	h.links[name] = l
	return l, nil
}

// isGone tells whether an operation failed because what it was to remove is not there.
func isGone(err error) bool {
	for _, gone := range []error{errNoLink, ErrGone, unix.ENODEV, unix.ENOENT, unix.ESRCH, unix.EADDRNOTAVAIL, unix.ENXIO} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
