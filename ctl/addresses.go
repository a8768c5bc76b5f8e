package ctl

import (
	"math"
	"strconv"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func addressesCommand(c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "addresses",
		Short:   "Lists the node's address pools and the addresses in use, with their holders",
		Example: "  weftctl addresses -o json | jq '.pools[] | {name, free}'",
		Args:    usage(cobra.NoArgs),
		RunE:    query(c, weftv1.OperationsClient.Addresses, &weftv1.AddressesRequest{}, printAddresses),
	}
	cmd.AddCommand(blocksCommand(c), addressCheckCommand(c))
	return cmd
}

func printAddresses(p *printer, reply *weftv1.AddressesReply) {
	pools := newGrid("pool", "prefix", "free", "leased", "used", "cooling")
	for _, pool := range reply.Pools {
		pools.row(pool.Name, pool.Prefix, approximate(pool.Free), pool.Leased, pool.Used, pool.Cooling)
	}
	p.printGrid(pools, "no pools")
	leases := newGrid("address", "pool", "state", "since", "free in", "holder")
	for _, l := range reply.Leases {
		leases.row(l.Address, l.Pool, l.State, p.age(l.Since), orDash(p.until(l.FreeAt)), l.Holder)
	}
	p.printf("\n")
	p.printGrid(leases, "all addresses are free")
}

// approximate formats a number of addresses. The exact number is useless for large IPv6 pools.
func approximate(n uint64) string {
	if n > math.MaxUint32 {
		return "> 4 billion"
	}
	return strconv.FormatUint(n, 10)
}
