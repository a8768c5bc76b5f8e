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

// verdict is what a check found.
type verdict struct {
	Pools     int    `json:"pools"`
	Blocks    int    `json:"blocks"`
	Addresses int    `json:"addresses"` // that nodes told of
	Nodes     int    `json:"nodes"`
	Node      string `json:"node,omitempty"`     // whose agent was asked too
	Leases    int    `json:"leases"`             // that it told of
	NotAsked  string `json:"notAsked,omitempty"` // why no agent was

	// Unseen lists nodes whose current addresses are unknown, with the reason. The check uses what they reported last.
	Unseen []string `json:"unseen,omitempty"`

	Violations []blocks.Violation `json:"violations"`
}

func (c *client) checkCommand() *cobra.Command {
	var kubeconfig, node string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Proves that no address of the cluster is twice or lost; asks the API server; exit code 1 when one is",
		Long: `Proves that no address of the cluster is twice or lost: it reads the pools, blocks and nodes from the API server and names
what must not be, a line each. Where an agent answers at the socket it also looks whether all that the agent gave out of
the pools is in blocks of its node.

It sees one moment. Nodes that come and go leave traces for a short time, and pools and networks that are deleted until nodes
release their empty blocks (releaseAfter): what is a fault is there later too.`,
		Example: "  weftctl addresses check || weftctl addresses check -o json | jq '.violations[]'",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.check(cmd.Context(), kubeconfig, node)
		},
	}
	kubeconfigFlag(cmd, &kubeconfig)
	cmd.Flags().StringVar(&node, "node", "", "name of the node whose agent is at the socket, which then must answer; default: NODE_NAME of the environment, else the host's name")
	return cmd
}

// check reads leases before blocks: a lease of no block, then, is one that had none when it was given. Who names the node
// wants its agent asked.
func (c *client) check(ctx context.Context, kubeconfig, node string) error {
	insists := node != ""
	reply, notAsked := c.leases(ctx)
	if insists && notAsked != nil {
		return notAsked
	}
	there, err := c.readCluster(ctx, kubeconfig)
	if err != nil {
		return err
	}
	v := verdict{Pools: len(there.Pools), Blocks: len(there.Blocks), Nodes: len(there.Nodes), Unseen: there.Unseen}
	for i := range there.Blocks {
		v.Addresses += len(there.Blocks[i].Status.Allocations)
	}
	v.Violations = append([]blocks.Violation{}, blocks.Check(there.Pools, there.Blocks, there.Nodes)...)
	for _, name := range slices.Sorted(maps.Keys(there.Taken)) {
		v.Violations = append(v.Violations, blocks.Violation{Rule: blocks.RuleTaken, Object: "node " + name, Text: there.Taken[name]})
	}
	if node, err = nodeName(node, there.Nodes); notAsked == nil && err != nil {
		if notAsked = err; insists {
			return err
		}
	}
	if notAsked == nil {
		v.judge(node, reply, there)
	} else {
		v.NotAsked = notAsked.Error()
	}
	return c.pronounce(v)
}

// leases asks the agent what it gave out.
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

// nodeName is the name that the agent here has in the cluster.
func nodeName(name string, nodes blocks.Nodes) (string, error) {
	if name = cmp.Or(name, os.Getenv("NODE_NAME")); name == "" {
		name, _ = os.Hostname() // a host without a name is no node
	}
	if _, exists := nodes[name]; !exists {
		return "", fmt.Errorf("the cluster has no node %q; --node names the one of the agent at the socket", name)
	}
	return name, nil
}

// judge looks at what a node's agent gave out.
func (v *verdict) judge(node string, reply *weftv1.AddressesReply, there k8sclient.Addresses) {
	var leases []blocks.Lease
	for _, l := range reply.GetLeases() {
		address, err := netip.ParseAddr(l.Address)
		if err != nil {
			continue // whatever it is, it is in no block
		}
		lease := blocks.Lease{Pool: l.Pool, Address: address, Holder: l.Holder}
		if network, _, custom := strings.Cut(l.Pool, ":"); custom { // NETWORK:FAMILY are those of a custom network
			lease.Network, lease.Pool = network, ""
		}
		leases = append(leases, lease)
	}
	v.Node, v.Leases = node, len(leases)
	v.Violations = append(v.Violations, blocks.CheckLeases(there.Pools, there.Blocks, node, leases)...)
}

// pronounce shows a verdict; its error is that there are violations.
func (c *client) pronounce(v verdict) error {
	if c.format != "table" {
		if err := c.document(v); err != nil {
			return err
		}
	} else {
		c.printVerdict(v)
	}
	if len(v.Violations) > 0 {
		return errors.New("the addresses of the cluster are not sound: " + counted(len(v.Violations), "violation"))
	}
	return nil
}

func (c *client) printVerdict(v verdict) {
	for _, violation := range v.Violations {
		c.printf("%s\n", c.bad(oneLine(violation.String())))
	}
	c.printf("looked at %s, %s, %s in use, %s\n", counted(v.Pools, "pool"), counted(v.Blocks, "block"),
		counted(v.Addresses, "address"), counted(v.Nodes, "node"))
	if v.NotAsked != "" {
		c.printf("no agent was asked: %s\n", oneLine(v.NotAsked))
	} else {
		c.printf("the agent of node %s has %s\n", v.Node, counted(v.Leases, "address"))
	}
	for _, node := range v.Unseen {
		c.printf("not checked, last report used: node %s\n", oneLine(node))
	}
	switch {
	case len(v.Violations) > 0:
	case len(v.Unseen) > 0:
		c.printf("%s, but %s not checked\n", c.good("sound"), counted(len(v.Unseen), "node"))
	default:
		c.printf("%s\n", c.good("sound"))
	}
}
