package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/k8s/blocks"
	k8sclient "github.com/weftnet/weft/k8s/client"
)

// kubeconfigFlag adds the flag --kubeconfig to a command that queries the API server.
func kubeconfigFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "kubeconfig", "", "kubeconfig file; default: environment variable KUBECONFIG, ~/.kube/config, else the pod's service account")
}

// readCluster reads pools, blocks and nodes from the API server.
func (c *client) readCluster(ctx context.Context, kubeconfig string) (k8sclient.Addresses, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	connection, err := k8sclient.OperatorConnection(kubeconfig)
	if err != nil {
		return k8sclient.Addresses{}, err
	}
	client, err := k8sclient.New(connection)
	if err != nil {
		return k8sclient.Addresses{}, err
	}
	cluster, err := client.Addresses(ctx)
	if err != nil && ctx.Err() != nil {
		return cluster, fmt.Errorf("%w (within %s; set a longer --timeout)", err, c.timeout)
	}
	return cluster, err
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

func (c *client) blocksCommand() *cobra.Command {
	var kubeconfig string
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
			cluster, err := c.readCluster(cmd.Context(), kubeconfig)
			if err != nil {
				return err
			}
			return c.showBlocks(cluster)
		},
	}
	kubeconfigFlag(cmd, &kubeconfig)
	return cmd
}

func (c *client) showBlocks(cluster k8sclient.Addresses) error {
	shares := blocks.Shares(cluster.Pools, cluster.Blocks)
	pools, nodes := poolRows(cluster.Pools, shares), nodeRows(shares)
	if c.format != "table" {
		return c.document(map[string]any{"pools": pools, "nodes": nodes})
	}
	g := newGrid("pool", "prefix", "block", "blocks", "claimed", "used", "cooling", "free")
	for _, p := range pools {
		length := orDash("")
		if p.BlockLength > 0 {
			length = fmt.Sprintf("/%d", p.BlockLength)
		}
		g.row(poolName(p.Pool, p.Network), orDash(p.Prefix), length, approximate(p.Blocks), p.Claimed, p.Used, p.Cooling, p.Free)
	}
	c.printGrid(g, "no pools")
	g = newGrid("node", "pool", "prefix", "blocks", "used", "cooling", "free", "offered", "borrowed")
	for _, n := range nodes {
		g.row(orDash(n.Node), poolName(n.Pool, n.Network), orDash(n.Prefix), n.Blocks, n.Used, n.Cooling, n.Free, n.Offered, n.Borrowed)
	}
	c.printf("\n")
	c.printGrid(g, "no blocks")
	return nil
}

// poolName names an IPPool or the addresses of a custom network.
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

func prefixText(p blocks.Pool) string {
	if !p.Prefix.IsValid() {
		return ""
	}
	return p.Prefix.String()
}
