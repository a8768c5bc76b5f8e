package ctl

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func addressesCommand(c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "addresses [ADDRESS]",
		Short: "Lists the node's address pools and the addresses in use, or says who has an address",
		Example: `  weftctl addresses 10.1.0.7
  weftctl addresses -o json | jq '.pools[] | {name, free}'`,
		Args:              usage(cobra.MatchAll(cobra.MaximumNArgs(1), isAddress)),
		ValidArgsFunction: completeAddresses(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &operatorv1.AddressesRequest{Address: strings.Join(args, "")}
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.Addresses, req)
			if err != nil {
				return err
			}
			if req.Address != "" && len(reply.Leases) == 0 {
				return unheld(req.Address, reply.Pools)
			}
			return c.show(reply, func() { printAddresses(&c.printer, reply) })
		},
	}
	cmd.AddCommand(blocksCommand(c), addressCheckCommand(c))
	return cmd
}

func isAddress(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if _, err := netip.ParseAddr(args[0]); err != nil {
		return fmt.Errorf("unknown command or invalid address %q", args[0])
	}
	return nil
}

// unheld says why an address has no holder on this node.
func unheld(address string, pools []*operatorv1.Pool) error {
	if len(pools) == 0 {
		return fmt.Errorf("address %s is in no pool of this node; another node may have it: weftctl addresses blocks",
			address)
	}
	return fmt.Errorf("address %s is free in pool %s (%s) on this node", address, pools[0].Name, pools[0].Prefix)
}

func printAddresses(p *printer, reply *operatorv1.AddressesReply) {
	pools := newGrid("pool", "prefix", "free", "leased", "used", "cooling")
	for _, pool := range reply.Pools {
		pools.row(pool.Name, pool.Prefix, approximate(pool.Free), pool.Leased, pool.Used, pool.Cooling)
	}
	p.printGrid(pools, "no pools")
	leases := newGrid("address", "pool", "state", wide("since"), "free in", "owner")
	for _, l := range reply.Leases {
		leases.row(l.Address, l.Pool, l.State, p.age(l.Since), orDash(p.until(l.FreeAt)), leaseOwner(l))
	}
	p.printf("\n")
	p.printGrid(leases, "all addresses are free")
}

// leaseOwner names the owner of an address: NAMESPACE/NAME:INTERFACE; the node; or the attachment if its pod is
// unknown, because it is deleted or has no pod. The IPAMClaim that holds the address for the next pod follows.
func leaseOwner(l *operatorv1.Lease) string {
	switch {
	case l.Pod.GetName() != "" && l.Claim != "":
		return interfaceName(l.Pod, "", l.Interface) + ", IPAMClaim " + l.Claim
	case l.Pod.GetName() != "":
		return interfaceName(l.Pod, "", l.Interface)
	}
	if l.State == "internal" {
		return "this node's dataplane and gateway"
	}
	network, rest, ok := strings.Cut(l.Holder, "/")
	container, iface, both := strings.Cut(rest, "/")
	if !ok || !both {
		return l.Holder
	}
	return network + "/" + shortID(container) + "/" + iface
}

// approximate formats a number of addresses. The exact number is useless for large IPv6 pools.
func approximate(n uint64) string {
	if n > math.MaxUint32 {
		return "> 4 billion"
	}
	return strconv.FormatUint(n, 10)
}
