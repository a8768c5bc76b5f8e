package scripts_test

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"

	"github.com/weftnet/weft/test/netns"
)

// A witness is a veth between the node and a sandbox. The kernel deletes it with the sandbox's network namespace, which
// it frees when no process, file descriptor or mount refers to it.

func (b *sandbox) witness() string { return "w-" + b.name }

func (s *stage) addWitness(b *sandbox) error {
	there, err := vishnetns.GetFromPath(b.path)
	if err != nil {
		return err
	}
	defer there.Close()
	return netns.Do(s.home, func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: b.witness()}, PeerName: "witness", PeerNamespace: netlink.NsFd(there),
		})
	})
}

func (s *stage) awaitGone(b *sandbox) error {
	return eventually(timeout, func() error {
		return netns.Do(s.home, func() error {
			_, err := netlink.LinkByName(b.witness())
			switch {
			case err == nil:
				return fmt.Errorf("the namespace of sandbox %s is still in use", b.name)
			case errors.As(err, new(netlink.LinkNotFoundError)):
				return nil
			}
			return err
		})
	})
}
