package ctl

import (
	"context"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) addressesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "addresses",
		Short:   "Lists the node's address pools and the addresses in use, with their holders",
		Example: "  weftctl addresses -o json | jq '.pools[] | {name, free}'",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd.Context(), c.addresses)
		},
	}
	cmd.AddCommand(c.blocksCommand(), c.checkCommand())
	return cmd
}

func (c *client) addresses(ctx context.Context, agent weftv1.OperationsClient) error {
	reply, err := agent.Addresses(ctx, &weftv1.AddressesRequest{})
	if err != nil {
		return err
	}
	return c.show(reply, func() {
		pools := newGrid("pool", "prefix", "free", "leased", "used", "cooling")
		for _, p := range reply.Pools {
			pools.row(p.Name, p.Prefix, approximate(p.Free), p.Leased, p.Used, p.Cooling)
		}
		c.printGrid(pools, "no pools")
		leases := newGrid("address", "pool", "state", "since", "free in", "holder")
		for _, l := range reply.Leases {
			leases.row(l.Address, l.Pool, l.State, c.age(l.Since), orDash(c.until(l.FreeAt)), l.Holder)
		}
		c.printf("\n")
		c.printGrid(leases, "all addresses are free")
	})
}

// approximate formats a number of addresses. The exact number is useless for large IPv6 pools.
func approximate(n uint64) string {
	if n > math.MaxUint32 {
		return "> 4 billion"
	}
	return strconv.FormatUint(n, 10)
}
