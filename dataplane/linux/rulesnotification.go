package linux

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	netfilter "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// FollowRules calls notify when rules of Weft's nftables tables in the agent's namespace are deleted, by `nft flush
// ruleset` for example, or when the kernel dropped notifications, until ctx ends. It also calls notify when it begins to
// follow, as rules may be gone already. notify must not block.
func FollowRules(ctx context.Context, notify func()) error {
	c, err := netfilter.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("open netlink of netfilter: %w", err)
	}
	defer c.Close()
	if err := c.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	notify()
	for {
		messages, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.ENOBUFS):
			notify()
		case err != nil:
			return fmt.Errorf("receive changes of nftables: %w", err)
		case slices.ContainsFunc(messages, isLossOfRules):
			notify()
		}
	}
}

// isLossOfRules reports whether a message is of a deletion in a table of Weft.
func isLossOfRules(m netfilter.Message) bool {
	const generalLength = 4 // of nfgenmsg, before the attributes
	if int(m.Header.Type)>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < generalLength {
		return false
	}
	switch int(m.Header.Type) & 0xff {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET:
	default:
		return false
	}
	attributes, err := netfilter.NewAttributeDecoder(m.Data[generalLength:])
	if err != nil {
		return false
	}
	for attributes.Next() {
		if attributes.Type() == unix.NFTA_TABLE_NAME { // the same for chains, rules and sets
			return strings.HasPrefix(attributes.String(), tableName)
		}
	}
	return false
}
