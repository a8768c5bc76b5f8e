package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/internal/version"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// The outage of weft-vswitch with a standby that starts empty, measured by make bench ONLY=replace (BENCHMARKS.md):
// 0.07 to 0.12 s with 18 interfaces, 0.48 to 0.65 s with 332, on two processors.
const (
	outageBase         = 70 * time.Millisecond
	outagePerInterface = 1500 * time.Microsecond
)

// upgradeCheck is the result of upgrade check.
type upgradeCheck struct {
	Agent     upgradePart `json:"agent"`
	Dataplane upgradePart `json:"dataplane"`
	Fix       []string    `json:"fix"` // to be fixed before the upgrade
}

// upgradePart is a program to upgrade.
type upgradePart struct {
	Running    string   `json:"running"`             // version
	Interrupts []string `json:"interrupts"`          // what an upgrade interrupts
	Outage     string   `json:"outage,omitempty"`    // expected
	Reconnect  int      `json:"reconnect,omitempty"` // clients of memifs that have to connect again without a handover
}

func upgradeCommand(c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Checks what an upgrade of the node will interrupt",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "check",
		Short: "Says what an upgrade of agent and dataplane will interrupt, and what to fix before; exit code 1 if there is something to fix",
		Long: `Says what an upgrade of agent and dataplane will interrupt on this node, and what to fix before. It changes nothing. The expected outage of
weft-vswitch is an estimate from the number of interfaces and measurements on two processors (docs/operations.md).`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			check, err := checkUpgrade(cmd.Context(), c.agent)
			if err != nil {
				return err
			}
			if err := c.show(check, func() { printUpgrade(&c.printer, check) }); err != nil || len(check.Fix) == 0 {
				return err
			}
			return fmt.Errorf("upgrade check: %s to fix before", counted(len(check.Fix), "problem"))
		},
	})
	return cmd
}

// node is what upgrade check reads.
type node struct {
	state      *operatorv1.StateReply
	quarantine *operatorv1.QuarantineReply
	interfaces *operatorv1.DataplaneInterfaces
	memifs     *operatorv1.DataplaneMemifs
	dataplane  struct {
		Type     string `json:"type"`
		External bool   `json:"external"`
	}
	unread error // why the dataplane was not read
}

func readNode(ctx context.Context, a agent) (*node, error) {
	n := &node{}
	err := a.dial(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) (err error) {
		operations := operatorv1.NewOperationsClient(conn)
		dataplane := operatorv1.NewDataplaneClient(conn)
		if n.state, err = operations.State(ctx, &operatorv1.StateRequest{}); err != nil {
			return err
		}
		if n.quarantine, err = operations.Quarantine(ctx, &operatorv1.QuarantineRequest{}); err != nil {
			return err
		}
		settings, err := operations.Settings(ctx, &operatorv1.SettingsRequest{})
		if err != nil {
			return err
		}
		var keys struct {
			Dataplane any `json:"dataplane"`
		}
		keys.Dataplane = &n.dataplane
		if err := yaml.Unmarshal([]byte(settings.Yaml), &keys); err != nil {
			return fmt.Errorf("the agent's settings: %w", err)
		}
		if n.interfaces, n.unread = dataplane.Interfaces(ctx, &operatorv1.DataplaneRequest{}); n.unread == nil {
			n.memifs, n.unread = dataplane.Memifs(ctx, &operatorv1.DataplaneRequest{})
		}
		return nil
	})
	return n, err
}

func checkUpgrade(ctx context.Context, a agent) (*upgradeCheck, error) {
	n, err := readNode(ctx, a)
	if err != nil {
		return nil, err
	}
	check := &upgradeCheck{
		Agent: upgradePart{
			Running: n.state.Version,
			Interrupts: []string{
				"traffic continues: the dataplane forwards without the agent",
				"new pods wait for the new agent; deletions are queued",
			},
		},
		Dataplane: n.dataplaneUpgrade(),
		Fix:       n.problems(),
	}
	if own := version.String(); own != n.state.Version {
		check.Agent.Interrupts = append(check.Agent.Interrupts, "this weftctl is "+own)
	}
	return check, nil
}

// dataplaneUpgrade lists the interruptions by a replacement of the dataplane.
func (n *node) dataplaneUpgrade() upgradePart {
	part := upgradePart{Running: n.state.Dataplane}
	if n.unread != nil {
		part.Interrupts = []string{"unknown: the dataplane was not read"}
		return part
	}
	ours := 0
	for _, i := range n.interfaces.Interfaces {
		if i.Owner.GetObject() != "" && i.Owner.GetObject() != i.Owner.GetName() {
			ours++
		}
	}
	for _, m := range n.memifs.Memifs {
		if m.Connected {
			part.Reconnect++
		}
	}
	outage := (outageBase + time.Duration(ours)*outagePerInterface).Round(10 * time.Millisecond)
	switch {
	case n.dataplane.Type == "vpp":
		part.Interrupts = append(part.Interrupts,
			fmt.Sprintf(
				"all traffic of %s stops until VPP has restarted and the agent has replayed its objects: VPP has no standby",
				counted(ours, "interface")))
	case n.dataplane.External:
		part.Outage = outage.String()
		part.Interrupts = append(part.Interrupts,
			"traffic continues if a standby takes over the running state (weft-vswitch status shows the standby)",
			fmt.Sprintf("otherwise all traffic of %s stops for about %s, longer without a standby",
				counted(ours, "interface"), outage))
	default:
		part.Interrupts = append(part.Interrupts,
			"traffic continues: an upgrade of the agent keeps the running weft-vswitch",
			fmt.Sprintf("its restart stops all traffic of %s for about %s", counted(ours, "interface"), 2*outage))
		part.Outage = (2 * outage).String()
	}
	switch {
	case part.Reconnect == 0:
	case n.dataplane.External && n.dataplane.Type != "vpp":
		part.Interrupts = append(part.Interrupts,
			counted(part.Reconnect, "client")+" of memifs must connect again, unless a standby takes over")
	default:
		part.Interrupts = append(part.Interrupts, counted(part.Reconnect, "client")+" of memifs must connect again")
	}
	return part
}

// problems lists what should be fixed before an upgrade.
func (n *node) problems() []string {
	problems := []string{}
	for _, condition := range n.state.Conditions {
		if !condition.Ok && condition.Name != "policies" {
			problems = append(problems, fmt.Sprintf("condition %s: %s", condition.Name, oneLine(condition.Message)))
		}
	}
	for _, e := range n.quarantine.Entries {
		problems = append(problems,
			fmt.Sprintf("%s is %s: %s; weftctl quarantine list", podName(e.Pod), e.State, oneLine(e.Reason)))
	}
	if n.state.Queue > 0 {
		problems = append(problems, counted(int(n.state.Queue), "event")+" queued: wait for their end")
	}
	if n.unread != nil {
		problems = append(problems, "the dataplane cannot be read: "+oneLine(n.unread.Error()))
	}
	return problems
}

func printUpgrade(p *printer, check *upgradeCheck) {
	for name, part := range []upgradePart{check.Agent, check.Dataplane} {
		p.printf("%-10s %s\n", []string{"agent", "dataplane"}[name], orDash(part.Running))
		for _, text := range part.Interrupts {
			p.printf("  - %s\n", text)
		}
	}
	if len(check.Fix) == 0 {
		p.printf("\n%s\n", p.good("nothing to fix before an upgrade"))
		return
	}
	p.printf("\nfix before:\n")
	for _, problem := range check.Fix {
		p.printf("  - %s\n", p.bad(problem))
	}
}
