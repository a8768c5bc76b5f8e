package port

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// lookAgain is the pause before a lookup of a tap, whose deletion may not have begun yet.
	lookAgain = 50 * time.Microsecond
	// maxDeletions bounds the deletions that the kernel has not answered: each takes a thread.
	maxDeletions = 32
)

// deletions has a token for each deletion that the kernel has not answered.
var deletions = make(chan struct{}, maxDeletions)

// vanish deletes the tap's link and returns when its namespace has it no more. The kernel removes it under its lock of links (RTNL)
// within 1 ms, and then waits some 20 ms for RCU callbacks before it answers: Wait waits for that. Vanish waits while maxDeletions
// deletions are not answered.
func (t *Tap) vanish() error {
	namespace, name, err := t.whereabouts()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	deletions <- struct{}{}
	t.deleting.Go(func() {
		defer func() { <-deletions }()
		ended <- deleteLink(namespace, name)
	})
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(lookAgain):
		}
		// The lookup waits for the lock of links, too.
		if _, err := t.name(); errors.Is(err, unix.EBADFD) {
			return nil
		}
	}
}

// whereabouts returns the namespace that the tap is in, as a pod may have moved it, and its name there.
func (t *Tap) whereabouts() (namespace *os.File, name string, err error) {
	fd, err := unix.IoctlRetInt(t.fd, unix.TUNGETDEVNETNS)
	if err != nil {
		return nil, "", fmt.Errorf("TUNGETDEVNETNS: %w", err)
	}
	namespace = os.NewFile(uintptr(fd), "netns")
	if name, err = t.name(); err != nil {
		return nil, "", errors.Join(err, namespace.Close())
	}
	return namespace, name, nil
}

// deleteLink deletes a tap and closes its namespace. It uses no descriptor of the tap, which may be another file's by now.
func deleteLink(namespace *os.File, name string) error {
	defer namespace.Close()
	return inNamespace(fmt.Sprintf("/proc/self/fd/%d", namespace.Fd()), func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		defer h.Close()
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		if _, isTap := link.(*netlink.Tuntap); !isTap {
			return fmt.Errorf("link %s is of type %s", name, link.Type())
		}
		return h.LinkDel(link)
	})
}

// Wait waits for the end of what Close began.
func (t *Tap) Wait() { t.deleting.Wait() }
