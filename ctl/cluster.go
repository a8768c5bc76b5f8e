package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/k8s/blocks"
	k8sclient "github.com/weftnet/weft/k8s/client"
)

// kubeconfigFlag is how a command that asks the API server, and not the agent, reaches it.
func kubeconfigFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "kubeconfig", "", "how to reach the API server; default: KUBECONFIG of the environment, ~/.kube/config, else as a pod")
}

// readCluster asks the API server, for as long as the client waits for answers.
func (c *client) readCluster(ctx context.Context, kubeconfig string) (k8sclient.Addresses, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	connection, err := k8sclient.OperatorConnection(kubeconfig)
	if err != nil {
		return k8sclient.Addresses{}, err
	}
	cluster, err := k8sclient.New(connection)
	if err != nil {
		return k8sclient.Addresses{}, err
	}
	there, err := cluster.Addresses(ctx)
	if err != nil && ctx.Err() != nil {
		return there, fmt.Errorf("%w (within %s; --timeout waits longer)", err, c.timeout)
	}
	return there, err
}

// poolRow is a pool as all nodes together have it.
type poolRow struct {
	Pool        string `json:"pool,omitempty"`
	Network     string `json:"network,omitempty"`
	Prefix      string `json:"prefix,omitempty"` // of a block that is of no pool: none
	BlockLength int    `json:"blockLength,omitempty"`
	Blocks      uint64 `json:"blocks"` // in all
	Claimed     int    `json:"claimed"`
	counts
}

// nodeRow is what one node has of a pool.
type nodeRow struct {
	Node     string `json:"node"` // "": no owner
	Pool     string `json:"pool,omitempty"`
	Network  string `json:"network,omitempty"`
	Prefix   string `json:"prefix,omitempty"`
	Blocks   int    `json:"blocks"`
	Offered  int    `json:"offered"`
	Borrowed int    `json:"borrowed"`
	counts
}

// counts are those of addresses in claimed blocks.
type counts struct {
	Used    int `json:"used"`
	Cooling int `json:"cooling"`
	Free    int `json:"free"`
}

func (n counts) and(s blocks.Share) counts {
	return counts{n.Used + s.Used, n.Cooling + s.Cooling, n.Free + s.Free}
}

func (c *client) blocksCommand() *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "blocks",
		Short: "Lists the cluster's pools, and what each node has of them; asks the API server",
		Long: `Lists the cluster's pools, and what each node has of them. It asks the API server, not the agent.

Addresses are counted in claimed blocks, as the nodes told last: used ones are pods', cooling ones were given back a short
time ago, free ones are allocated without a request to the API server. Those on offer to other nodes are none of them.`,
		Example: "  weftctl addresses blocks -o json | jq '.nodes[] | select(.free == 0)'",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			there, err := c.readCluster(cmd.Context(), kubeconfig)
			if err != nil {
				return err
			}
			return c.showBlocks(there)
		},
	}
	kubeconfigFlag(cmd, &kubeconfig)
	return cmd
}

func (c *client) showBlocks(there k8sclient.Addresses) error {
	shares := blocks.Shares(there.Pools, there.Blocks)
	pools, nodes := poolRows(there.Pools, shares), nodeRows(shares)
	if c.format != "table" {
		return c.document(map[string]any{"pools": pools, "nodes": nodes})
	}
	g := newGrid("pool", "prefix", "block", "blocks", "claimed", "used", "cooling", "free")
	for _, p := range pools {
		length := orDash("")
		if p.BlockLength > 0 {
			length = fmt.Sprintf("/%d", p.BlockLength)
		}
		g.row(poolName(p.Pool, p.Network), orDash(p.Prefix), length, plenty(p.Blocks), p.Claimed, p.Used, p.Cooling, p.Free)
	}
	c.printGrid(g, "there is no pool")
	g = newGrid("node", "pool", "prefix", "blocks", "used", "cooling", "free", "offered", "borrowed")
	for _, n := range nodes {
		g.row(orDash(n.Node), poolName(n.Pool, n.Network), orDash(n.Prefix), n.Blocks, n.Used, n.Cooling, n.Free, n.Offered, n.Borrowed)
	}
	c.printf("\n")
	c.printGrid(g, "no node has a block")
	return nil
}

// poolName is what people call an IPPool, or the addresses of a custom network.
func poolName(pool, network string) string {
	if network != "" {
		return "network " + network
	}
	return orDash(pool)
}

func poolRows(pools []blocks.Pool, shares []blocks.Share) []poolRow {
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
			row.counts = row.and(s)
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
			Offered: s.Offered, Borrowed: s.Borrowed, counts: counts{}.and(s),
		})
	}
	return rows
}

func prefixText(p blocks.Pool) string {
	if !p.Prefix.IsValid() {
		return ""
	}
	return p.Prefix.String()
}
