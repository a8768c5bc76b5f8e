package scripts_test

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"

	"github.com/weftnet/weft/test/netns"
)

// A witness is a pair of links between the node and a sandbox. It goes when the kernel has taken the sandbox's
// namespace apart, and not before: which it does only when nobody holds it, by whatever means.

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
	return eventually(patience, func() error {
		return netns.Do(s.home, func() error {
			_, err := netlink.LinkByName(b.witness())
			switch {
			case err == nil:
				return fmt.Errorf("somebody holds the namespace of sandbox %s", b.name)
			case errors.As(err, new(netlink.LinkNotFoundError)):
				return nil
			}
			return err
		})
	})
}
