package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/k8s/blocks"
	k8sclient "github.com/weftnet/weft/k8s/client"
)

// readCluster reads pools, blocks and nodes from the API server.
func readCluster(ctx context.Context, c *client) (k8sclient.Addresses, error) {
	ctx, cancel := context.WithTimeout(ctx, c.agent.timeout)
	defer cancel()
	api, err := c.cluster()
	if err != nil {
		return k8sclient.Addresses{}, err
	}
	cluster, err := api.Addresses(ctx)
	if err != nil && ctx.Err() != nil {
		return cluster, fmt.Errorf("%w (within %s; set a longer --timeout)", err, c.agent.timeout)
	}
	return cluster, err
}

// blocksReport is the result of addresses blocks.
type blocksReport struct {
	Nodes []nodeRow `json:"nodes"`
	Pools []poolRow `json:"pools"`
}

// poolRow is the cluster-wide state of a pool.
type poolRow struct {
	Pool        string `json:"pool,omitempty"`
	Network     string `json:"network,omitempty"`
	Prefix      string `json:"prefix,omitempty"` // empty for blocks without a pool
	BlockLength int    `json:"blockLength,omitempty"`
	Blocks      uint64 `json:"blocks"` // size of the pool
	Claimed     int    `json:"claimed"`
	counts
}

// nodeRow is one node's share of a pool.
type nodeRow struct {
	Node     string `json:"node"` // empty for blocks without an owner
	Pool     string `json:"pool,omitempty"`
	Network  string `json:"network,omitempty"`
	Prefix   string `json:"prefix,omitempty"`
	Blocks   int    `json:"blocks"`
	Offered  int    `json:"offered"`
	Borrowed int    `json:"borrowed"`
	counts
}

// counts are numbers of addresses in claimed blocks.
type counts struct {
	Used    int `json:"used"`
	Cooling int `json:"cooling"`
	Free    int `json:"free"`
}

func (n counts) add(s blocks.Share) counts {
	return counts{n.Used + s.Used, n.Cooling + s.Cooling, n.Free + s.Free}
}

func blocksCommand(c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blocks",
		Short: "Lists the cluster's pools and each node's share; reads from the API server",
		Long: `Lists the cluster's pools and each node's share of them. The command reads from the API server, not from the agent.

The columns used, cooling and free count addresses in claimed blocks, as the nodes reported them last. Pods have the used addresses.
Cooling addresses were released a short time ago. A node allocates free addresses without a request to the API server. Addresses
that are offered to other nodes are not counted.`,
		Example: "  weftctl addresses blocks -o json | jq '.nodes[] | select(.free == 0)'",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := readCluster(cmd.Context(), c)
			if err != nil {
				return err
			}
			shares := blocks.Shares(cluster.Pools, cluster.Blocks)
			pools := poolRows(cluster.Pools, shares)
			nodes := nodeRows(shares)
			return c.show(blocksReport{Nodes: nodes, Pools: pools}, func() {
				printBlocks(&c.printer, pools, nodes)
			})
		},
	}
	return cmd
}

func printBlocks(p *printer, pools []poolRow, nodes []nodeRow) {
	g := newGrid("pool", "prefix", "block", "blocks", "claimed", "used", "cooling", "free")
	for _, pool := range pools {
		length := orDash("")
		if pool.BlockLength > 0 {
			length = fmt.Sprintf("/%d", pool.BlockLength)
		}
		g.row(poolName(pool.Pool, pool.Network), orDash(pool.Prefix), length, approximate(pool.Blocks), pool.Claimed,
			pool.Used, pool.Cooling, pool.Free)
	}
	p.printGrid(g, "no pools")
	g = newGrid("node", "pool", "prefix", "blocks", "used", "cooling", "free", "offered", "borrowed")
	for _, n := range nodes {
		g.row(orDash(n.Node), poolName(n.Pool, n.Network), orDash(n.Prefix), n.Blocks, n.Used, n.Cooling, n.Free,
			n.Offered, n.Borrowed)
	}
	p.printf("\n")
	p.printGrid(g, "no blocks")
}

// poolName names an IPPool or the addresses of a custom network.
func poolName(pool, network string) string {
	if network != "" {
		return "network " + network
	}
	return orDash(pool)
}

func poolRows(pools []blocks.PoolCIDR, shares []blocks.Share) []poolRow {
	rows := []poolRow{}
	for _, p := range pools {
		row := poolRow{Pool: p.Name, Network: p.Network, Prefix: prefixText(p), BlockLength: p.Bits}
		if p.Validate() == nil {
			row.Blocks = p.Blocks()
		}
		for _, s := range shares {
			if s.Pool != p {
				continue
			}
			row.counts = row.add(s)
			if s.Node != "" {
				row.Claimed += s.Blocks
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func nodeRows(shares []blocks.Share) []nodeRow {
	rows := []nodeRow{}
	for _, s := range shares {
		rows = append(rows, nodeRow{
			Node: s.Node, Pool: s.Pool.Name, Network: s.Pool.Network, Prefix: prefixText(s.Pool), Blocks: s.Blocks,
			Offered: s.Offered, Borrowed: s.Borrowed, counts: counts{}.add(s),
		})
	}
	return rows
}

func prefixText(p blocks.PoolCIDR) string {
	if !p.Prefix.IsValid() {
		return ""
	}
	return p.Prefix.String()
}
