package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/k8s/blocks"
	k8sclient "github.com/weftnet/weft/k8s/client"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// checkResult is the result of addresses check.
type checkResult struct {
	Pools     int    `json:"pools"`
	Blocks    int    `json:"blocks"`
	Addresses int    `json:"addresses"` // reported as used by nodes
	Nodes     int    `json:"nodes"`
	Node      string `json:"node,omitempty"`     // the node of the agent at the socket
	Leases    int    `json:"leases"`             // of that agent
	NotAsked  string `json:"notAsked,omitempty"` // why no agent was queried

	// Unseen lists nodes whose current addresses are unknown, with the reason. The check uses what they reported last.
	Unseen []string `json:"unseen,omitempty"`

	Violations []blocks.Violation `json:"violations"`
}

func (c *client) checkCommand() *cobra.Command {
	var kubeconfig, node string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Checks that no address of the cluster is allocated twice or lost; exit code 1 on violations",
		Long: `Checks that no address of the cluster is allocated twice or lost. The command reads the pools, blocks and nodes from the API
server and prints one line for each violation. If an agent answers at the socket, the command also checks that all addresses
which this agent leased from the pools are in blocks of its node.

The check reads one moment. Nodes that join or leave can cause violations for a short time. So can deleted pools and networks,
until nodes release the empty blocks (releaseAfter). Repeat the check: real errors remain.`,
		Example: "  weftctl addresses check || weftctl addresses check -o json | jq '.violations[]'",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.check(cmd.Context(), kubeconfig, node)
		},
	}
	kubeconfigFlag(cmd, &kubeconfig)
	cmd.Flags().StringVar(&node, "node", "", "name of this node; makes the check fail if its agent does not answer; default: environment variable NODE_NAME, else the host name")
	return cmd
}

// check reads leases before blocks: the node has claimed the block of every lease before it leases the address. With --node
// an agent that does not answer is an error.
func (c *client) check(ctx context.Context, kubeconfig, node string) error {
	required := node != ""
	reply, notAsked := c.leases(ctx)
	if required && notAsked != nil {
		return notAsked
	}
	cluster, err := c.readCluster(ctx, kubeconfig)
	if err != nil {
		return err
	}
	v := checkResult{Pools: len(cluster.Pools), Blocks: len(cluster.Blocks), Nodes: len(cluster.Nodes), Unseen: cluster.Unseen}
	for i := range cluster.Blocks {
		v.Addresses += len(cluster.Blocks[i].Status.Allocations)
	}
	v.Violations = append([]blocks.Violation{}, blocks.Check(cluster.Pools, cluster.Blocks, cluster.Nodes)...)
	for _, name := range slices.Sorted(maps.Keys(cluster.Taken)) {
		v.Violations = append(v.Violations, blocks.Violation{Rule: blocks.RuleTaken, Object: "node " + name, Text: cluster.Taken[name]})
	}
	if node, err = nodeName(node, cluster.Nodes); notAsked == nil && err != nil {
		if notAsked = err; required {
			return err
		}
	}
	if notAsked == nil {
		v.addLeases(node, reply, cluster)
	} else {
		v.NotAsked = notAsked.Error()
	}
	return c.showCheck(v)
}

// leases returns the agent's leases.
func (c *client) leases(ctx context.Context) (*weftv1.AddressesReply, error) {
	if _, err := os.Stat(c.socket); err != nil {
		return nil, fmt.Errorf("no agent answers at %s", c.socket)
	}
	var reply *weftv1.AddressesReply
	err := c.ask(ctx, func(ctx context.Context, agent weftv1.OperationsClient) (err error) {
		reply, err = agent.Addresses(ctx, &weftv1.AddressesRequest{})
		return err
	})
	return reply, err
}

// nodeName returns the name of this node in the cluster.
func nodeName(name string, nodes blocks.Nodes) (string, error) {
	if name = cmp.Or(name, os.Getenv("NODE_NAME")); name == "" {
		name, _ = os.Hostname() // without a host name the lookup below fails
	}
	if _, exists := nodes[name]; !exists {
		return "", fmt.Errorf("the cluster has no node %q; set --node to the name of this node", name)
	}
	return name, nil
}

// addLeases checks the leases of a node's agent.
func (v *checkResult) addLeases(node string, reply *weftv1.AddressesReply, cluster k8sclient.Addresses) {
	var leases []blocks.Lease
	for _, l := range reply.GetLeases() {
		address, err := netip.ParseAddr(l.Address)
		if err != nil {
			continue // an invalid address is in no block
		}
		lease := blocks.Lease{Pool: l.Pool, Address: address, Holder: l.Holder}
		if network, _, custom := strings.Cut(l.Pool, ":"); custom { // a custom network's pool is NETWORK:FAMILY
			lease.Network, lease.Pool = network, ""
		}
		leases = append(leases, lease)
	}
	v.Node, v.Leases = node, len(leases)
	v.Violations = append(v.Violations, blocks.CheckLeases(cluster.Pools, cluster.Blocks, node, leases)...)
}

// showCheck prints a result. It returns an error if there are violations.
func (c *client) showCheck(v checkResult) error {
	if c.format != "table" {
		if err := c.document(v); err != nil {
			return err
		}
	} else {
		c.printCheck(v)
	}
	if len(v.Violations) > 0 {
		return errors.New("addresses check: " + counted(len(v.Violations), "violation"))
	}
	return nil
}

func (c *client) printCheck(v checkResult) {
	for _, violation := range v.Violations {
		c.printf("%s\n", c.bad(oneLine(violation.String())))
	}
	c.printf("%s, %s, %s in use, %s checked\n", counted(v.Pools, "pool"), counted(v.Blocks, "block"),
		counted(v.Addresses, "address"), counted(v.Nodes, "node"))
	if v.NotAsked != "" {
		c.printf("leases not checked: %s\n", oneLine(v.NotAsked))
	} else {
		c.printf("%s of node %s checked\n", counted(v.Leases, "lease"), v.Node)
	}
	for _, node := range v.Unseen {
		c.printf("not checked, last report used: node %s\n", oneLine(node))
	}
	switch {
	case len(v.Violations) > 0:
	case len(v.Unseen) > 0:
		c.printf("%s, but %s not checked\n", c.good("no problems"), counted(len(v.Unseen), "node"))
	default:
		c.printf("%s\n", c.good("no problems"))
	}
}
