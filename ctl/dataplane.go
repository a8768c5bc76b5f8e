package ctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func dataplaneCommand(c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dataplane",
		Short: "Shows what the dataplane has now: interfaces, memifs, drops, routes, bridge domains, neighbours, load",
		Long: `Shows what the dataplane (VPP or weft-vswitch) has now, also objects that Weft did not create and entries that the dataplane learned.
The commands change nothing. Interfaces of pods have the names of the pods. With NAMESPACE/NAME a command shows what belongs to that pod.`,
		Example: `  weftctl dataplane drops                  dropped packets, with the reasons in words
  weftctl dataplane fib --to 10.1.0.7      routes that cover an address, the longest prefix first
  weftctl dataplane interfaces shop/cart   interfaces of a pod, by the names of the dataplane`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	fib := dataplaneQuery(c, title{"fib", "Lists the routes of all VRFs and sources"}, operatorv1.DataplaneClient.FIB,
		printFIB)
	fib.Flags().String("vrf", "", "only this VRF, or the VRFs of this network")
	fib.Flags().String("to", "", "only routes that cover this address, the longest prefix first")
	bridges := dataplaneQuery(c, title{"bridges", "Lists the bridge domains with members and MAC tables"},
		operatorv1.DataplaneClient.Bridges, printBridges)
	bridges.Flags().String("name", "", "only this bridge domain")
	cmd.AddCommand(
		dataplaneQuery(c, title{"interfaces", "Lists the interfaces"}, operatorv1.DataplaneClient.Interfaces,
			printInterfaces),
		dataplaneQuery(c, title{"memifs", "Lists the memifs and whether their clients are connected"},
			operatorv1.DataplaneClient.Memifs, printMemifs),
		dataplaneQuery(c, title{"drops", "Lists dropped packets by interface and by reason"},
			operatorv1.DataplaneClient.Drops, printDrops),
		fib, bridges,
		dataplaneQuery(c, title{"neighbours", "Lists the neighbours"}, operatorv1.DataplaneClient.Neighbours,
			printNeighbours),
		dataplaneQuery(c, title{"runtime", "Shows the load of the dataplane's threads"},
			operatorv1.DataplaneClient.Runtime, printRuntime),
	)
	return cmd
}

// title is the name of a command with its help in one line.
type title struct{ name, short string }

// dataplaneMethod is a method of the service Dataplane.
type dataplaneMethod[Reply proto.Message] func(
	operatorv1.DataplaneClient, context.Context, *operatorv1.DataplaneRequest, ...grpc.CallOption,
) (Reply, error)

// dataplaneQuery makes a command that prints the reply to one request.
func dataplaneQuery[Reply proto.Message](
	c *client, title title, m dataplaneMethod[Reply], table func(*printer, Reply),
) *cobra.Command {
	return &cobra.Command{
		Use:               title.name + " [NAMESPACE/NAME]",
		Short:             title.short,
		Args:              usage(cobra.MatchAll(cobra.MaximumNArgs(1), isPod)),
		ValidArgsFunction: completePods(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &operatorv1.DataplaneRequest{Pod: strings.Join(args, "")}
			for flag, field := range map[string]*string{"vrf": &req.Network, "name": &req.Network, "to": &req.Address} {
				if f := cmd.Flags().Lookup(flag); f != nil {
					*field = f.Value.String()
				}
			}
			var reply Reply
			err := c.agent.dial(cmd.Context(), func(ctx context.Context, conn grpc.ClientConnInterface) (err error) {
				reply, err = m(operatorv1.NewDataplaneClient(conn), ctx, req)
				return err
			})
			if err != nil {
				return err
			}
			return c.show(reply, func() { table(&c.printer, reply) })
		},
	}
}

// ownerName names an interface: NAMESPACE/NAME:INTERFACE for a pod's, else the object of Weft or the dataplane's name.
func ownerName(o *operatorv1.Owner) string {
	if o.GetPod().GetName() != "" {
		return interfaceName(o.Pod, "", o.Interface)
	}
	return cmp.Or(o.GetObject(), o.GetName(), "-")
}

func printInterfaces(p *printer, reply *operatorv1.DataplaneInterfaces) {
	g := newGrid("idx", "name", "interface", "state", "mtu", "network")
	for _, i := range reply.Interfaces {
		state := "down"
		if i.Up && i.LinkUp {
			state = "up"
		} else if i.Up {
			state = "no link"
		}
		networks := i.Vrfs
		if i.BridgeDomain != "" {
			networks = []string{"bridge " + i.BridgeDomain}
		}
		g.row(i.Index, i.Owner.GetName(), ownerName(i.Owner), state, i.Mtu, orDash(strings.Join(networks, " ")))
	}
	p.printGrid(g, "no interfaces")
}

func printMemifs(p *printer, reply *operatorv1.DataplaneMemifs) {
	g := newGrid("interface", "id", "role", "connected", "ring", "buffer", "socket")
	for _, m := range reply.Memifs {
		state := p.bad("no")
		if m.Connected {
			state = p.good("yes")
		}
		ring := "-"
		buffer := "-"
		if m.BufferSize > 0 { // else they are unknown
			ring = strconv.Itoa(int(m.RingSize))
			buffer = strconv.Itoa(int(m.BufferSize))
		}
		g.row(ownerName(m.Owner), m.Id, m.Role, state, ring, buffer, m.Socket)
	}
	p.printGrid(g, "no memifs")
}

func printDrops(p *printer, reply *operatorv1.DataplaneDrops) {
	g := newGrid("interface", "sent by the pod", "to the pod")
	for _, i := range reply.Interfaces {
		g.row(ownerName(i.Owner), i.FromPod, i.ToPod)
	}
	p.printGrid(g, "no interface dropped packets")
	reasons := slices.DeleteFunc(slices.Clone(reply.Reasons), func(r *operatorv1.DropReason) bool {
		return r.Statistic
	})
	for n, r := range reasons {
		if n == 0 {
			p.printf("\n")
		}
		p.printf("%d  %s: %s\n", r.Count, oneLine(r.Node), oneLine(r.Reason))
		if r.Explanation != "" {
			p.printf("      %s\n", r.Explanation)
		}
	}
	p.printHidden(len(reply.Reasons) - len(reasons))
}

// printHidden says how many counters of statistics are not shown.
func (p *printer) printHidden(counters int) {
	if counters > 0 {
		p.printf("\n%s that are no drops not shown: -o json lists them\n", counted(counters, "counter"))
	}
}

func printFIB(p *printer, reply *operatorv1.DataplaneFIB) {
	g := newGrid("vrf", "prefix", "path")
	vrf := ""
	for _, r := range reply.Routes {
		shown := ""
		if r.Vrf != vrf {
			shown = r.Vrf
			vrf = r.Vrf
		}
		for n, path := range r.Paths {
			prefix := r.Prefix
			if n > 0 {
				shown = ""
				prefix = ""
			}
			g.row(shown, prefix, pathText(path))
		}
	}
	p.printGrid(g, "no routes")
}

// pathText formats a path: "drop", "local", "via 10.1.0.1 on INTERFACE", "on INTERFACE".
func pathText(path *operatorv1.DataplanePath) string {
	words := []string{}
	if path.Action != "" {
		words = append(words, path.Action)
	}
	if path.NextHop != "" {
		words = append(words, "via "+path.NextHop)
	}
	if path.Owner != nil {
		words = append(words, "on "+ownerName(path.Owner))
	}
	return orDash(strings.Join(words, " "))
}

func printBridges(p *printer, reply *operatorv1.DataplaneBridges) {
	for n, b := range reply.Bridges {
		if n > 0 {
			p.printf("\n")
		}
		p.printf("%s  (bridge domain %d%s)\n", b.Name, b.Id, features(b))
		for _, m := range b.Members {
			extra := ""
			if m.Bvi {
				extra = "  gateway (BVI)"
			} else if m.SplitHorizonGroup > 0 {
				extra = fmt.Sprintf("  split-horizon group %d", m.SplitHorizonGroup)
			}
			p.printf("  member  %s%s\n", ownerName(m.Owner), extra)
		}
		for _, m := range b.Macs {
			kind := "learned"
			if m.Static {
				kind = "static"
			}
			p.printf("  %s  %-7s  %s\n", m.Mac, kind, ownerName(m.Owner))
		}
	}
	if len(reply.Bridges) == 0 {
		p.printf("no bridge domains\n")
	}
}

// features names the disabled features of a bridge domain.
func features(b *operatorv1.DataplaneBridge) string {
	var off strings.Builder
	for _, f := range []struct {
		name string
		on   bool
	}{{"learn", b.Learn}, {"flood", b.Flood}, {"forward", b.Forward}, {
		"flood unknown unicast", b.UnknownUnicastFlood,
	}} {
		if !f.on {
			off.WriteString(", does not " + f.name)
		}
	}
	return off.String()
}

func printNeighbours(p *printer, reply *operatorv1.DataplaneNeighbours) {
	g := newGrid("interface", "address", "mac", "kind", "age")
	for _, n := range reply.Neighbours {
		kind := "learned"
		age := span(n.Age.AsDuration())
		if n.Static {
			kind = "static"
			age = "-"
		}
		g.row(ownerName(n.Owner), n.Address, n.Mac, kind, age)
	}
	p.printGrid(g, "no neighbours")
}

func printRuntime(p *printer, reply *operatorv1.DataplaneRuntime) {
	p.printf("%s\n\n%s\n", reply.Dataplane, strings.TrimRight(printable(reply.Report), "\n"))
}
