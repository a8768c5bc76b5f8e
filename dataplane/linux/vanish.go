package linux

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// lookAgain is the pause before a lookup of a link, whose deletion may not have begun yet.
	lookAgain = 50 * time.Microsecond
	// maxDeletions bounds the deletions that the kernel has not answered: each takes a thread.
	maxDeletions = 32
)

// deletions has a token for each deletion that the kernel has not answered.
var deletions = make(chan struct{}, maxDeletions)

// deletion is the deletion of a link of the node. The kernel removes the link under its lock of links (RTNL) within 1 ms, and then waits
// some 20 ms for RCU callbacks before it answers. Once that lock is free, the names of the link and of its peer are free, too. The kernel
// completes the deletion even if the agent is killed, and several deletions at once.
type deletion struct {
	link  netlink.Link
	ended <-chan error
}

// beginDeletion deletes a link on a thread and a socket of its own, which end with the kernel's answer. It waits while maxDeletions
// deletions are not answered.
func beginDeletion(l netlink.Link) *deletion {
	ended := make(chan error, 1)
	deletions <- struct{}{}
	go func() {
		defer func() { <-deletions }()
		ended <- visit("", Place{}, func(h *handle) error { return h.LinkDel(l) })
	}()
	return &deletion{l, ended}
}

// await returns when the link is gone, or when the kernel has answered. A lookup of the link waits for the lock, too.
func (d *deletion) await(home *handle) error {
	for {
		select {
		case err := <-d.ended:
			return err
		case <-time.After(lookAgain):
		}
		switch _, err := home.LinkByIndex(d.link.Attrs().Index); {
		case errors.As(err, new(netlink.LinkNotFoundError)):
			return nil
		case err != nil:
			return <-d.ended
		}
	}
}
