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
	// removalPoll is the interval of checks whether the tap is deleted.
	removalPoll = 50 * time.Microsecond
	// maxDeletions limits concurrent deletions: each one blocks a thread.
	maxDeletions = 32
)

// deletions has a token for each deletion in progress.
var deletions = make(chan struct{}, maxDeletions)

// remove deletes the tap's link and returns when it has left its namespace. The kernel removes it under the RTNL lock
// within 1 ms, but answers only after some 20 ms of RCU callbacks; Wait waits for the answer. While maxDeletions
// deletions are in progress, remove waits.
func (t *Tap) remove() error {
	namespace, name, err := t.location()
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
		case <-time.After(removalPoll):
		}
		// The lookup also waits for the RTNL lock.
		if _, err := t.name(); errors.Is(err, unix.EBADFD) {
			return nil
		}
	}
}

// location returns the tap's current namespace and name, which a pod may have changed.
func (t *Tap) location() (namespace *os.File, name string, err error) {
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

// deleteLink deletes a tap and closes its namespace. It does not use the tap's descriptor, which may belong to another
// file by now.
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

// Wait waits for the end of Close.
func (t *Tap) Wait() { t.deleting.Wait() }
