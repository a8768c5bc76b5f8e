package ctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/k8s/blocks"
	k8sclient "github.com/weftnet/weft/k8s/client"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
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

	// Unseen lists nodes whose current addresses are unknown, with the reason. The check uses their last reports.
	Unseen []string `json:"unseen,omitempty"`

	Violations []blocks.Violation `json:"violations"`
}

func addressCheckCommand(c *client) *cobra.Command {
	var node string
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
			r, err := checkAddresses(cmd.Context(), c, node)
			if err != nil {
				return err
			}
			err = c.show(r, func() { printAddressCheck(&c.printer, r) })
			if err == nil && len(r.Violations) > 0 {
				return fmt.Errorf("addresses check: %s", counted(len(r.Violations), "violation"))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&node, "node", "",
		"name of this node; makes the check fail if its agent does not answer; default: environment variable NODE_NAME, else the host name")
	return cmd
}

// checkAddresses reads leases before blocks: the node has claimed the block of every lease before it leases the
// address. If the caller names the node, an agent that does not answer is an error.
func checkAddresses(ctx context.Context, c *client, node string) (*checkResult, error) {
	required := node != ""
	reply, agentErr := leases(ctx, c.agent)
	if required && agentErr != nil {
		return nil, agentErr
	}
	cluster, err := readCluster(ctx, c)
	if err != nil {
		return nil, err
	}
	r := &checkResult{
		Pools:  len(cluster.Pools),
		Blocks: len(cluster.Blocks),
		Nodes:  len(cluster.Nodes),
		Unseen: cluster.Unseen,
	}
	for i := range cluster.Blocks {
		r.Addresses += len(cluster.Blocks[i].Status.Allocations)
	}
	r.Violations = append([]blocks.Violation{}, blocks.Check(cluster.Pools, cluster.Blocks, cluster.Nodes)...)
	for _, name := range slices.Sorted(maps.Keys(cluster.Taken)) {
		r.Violations = append(r.Violations, blocks.Violation{
			Rule:   blocks.RuleTaken,
			Object: "node " + name,
			Text:   cluster.Taken[name],
		})
	}
	if agentErr == nil {
		node, agentErr = nodeName(node, cluster.Nodes)
	}
	switch {
	case agentErr == nil:
		r.addLeases(node, reply, cluster)
	case required:
		return nil, agentErr
	default:
		r.NotAsked = agentErr.Error()
	}
	return r, nil
}

// leases returns the agent's leases.
func leases(ctx context.Context, a agent) (*operatorv1.AddressesReply, error) {
	if _, err := os.Stat(a.socket); err != nil {
		return nil, fmt.Errorf("no agent answers at %s", a.socket)
	}
	return call(ctx, a, operatorv1.OperationsClient.Addresses, &operatorv1.AddressesRequest{})
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
func (r *checkResult) addLeases(node string, reply *operatorv1.AddressesReply, cluster k8sclient.Addresses) {
	var leases []blocks.Lease
	for _, l := range reply.GetLeases() {
		if l.State == "occupied" {
			continue // by a link of the node, not by a pod
		}
		address, err := netip.ParseAddr(l.Address)
		if err != nil {
			continue // an invalid address is in no block
		}
		lease := blocks.Lease{Pool: l.Pool, Address: address, Holder: l.Holder}
		if network, _, custom := strings.Cut(l.Pool, ":"); custom { // a custom network's pool is NETWORK:FAMILY
			lease.Network = network
			lease.Pool = ""
		}
		leases = append(leases, lease)
	}
	r.Node = node
	r.Leases = len(leases)
	r.Violations = append(r.Violations, blocks.CheckLeases(cluster.Pools, cluster.Blocks, node, leases)...)
}

func printAddressCheck(p *printer, r *checkResult) {
	for _, violation := range r.Violations {
		p.printf("%s\n", p.bad(oneLine(violation.String())))
	}
	p.printf("%s, %s, %s in use, %s checked\n", counted(r.Pools, "pool"), counted(r.Blocks, "block"),
		counted(r.Addresses, "address"), counted(r.Nodes, "node"))
	if r.NotAsked != "" {
		p.printf("leases not checked: %s\n", oneLine(r.NotAsked))
	} else {
		p.printf("%s of node %s checked\n", counted(r.Leases, "lease"), r.Node)
	}
	for _, node := range r.Unseen {
		p.printf("not checked, last report used: node %s\n", oneLine(node))
	}
	switch {
	case len(r.Violations) > 0:
	case len(r.Unseen) > 0:
		p.printf("%s, but %s not checked\n", p.good("no problems"), counted(len(r.Unseen), "node"))
	default:
		p.printf("%s\n", p.good("no problems"))
	}
}
