package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/ctl/picture"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func graphCommand(c *client) *cobra.Command {
	var depth uint32
	var format string
	cmd := &cobra.Command{
		Use:   "graph KEY|NAMESPACE/POD",
		Short: "Draws an object's dependencies and dependents",
		Long: `Draws the objects around an object, or around all objects of a pod: what they depend on, and what depends on them,
each with its phase. The graph is printed as DOT, the language of Graphviz, or as SVG, for which Graphviz is not needed. With -o json
or yaml it is printed as a list of nodes and edges.`,
		Example: `  weftctl graph default/web --format svg > web.svg
  weftctl graph vpp.vrf/weft:pods --depth 1 | dot -Tpng > vrf.png`,
		Args:              usage(cobra.ExactArgs(1)),
		ValidArgsFunction: completeSelectors(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			draw := map[string]func(picture.Graph) string{"dot": picture.DOT, "svg": picture.SVG}[format]
			if draw == nil {
				return usageError{fmt.Errorf("--format %q: must be dot or svg", format)}
			}
			reply, err := callPlanning(cmd.Context(), c.agent, operatorv1.PlanningClient.Graph,
				&operatorv1.GraphRequest{Selector: args[0], Depth: depth})
			if err != nil {
				return err
			}
			if reply.Omitted > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s omitted: the graph is too large; use a smaller --depth\n",
					counted(int(reply.Omitted), "object"))
			}
			return c.show(reply, func() { c.printf("%s", draw(pictureOf(args[0], reply))) })
		},
	}
	cmd.Flags().Uint32Var(&depth, "depth", 1, "most relations between the object and another one")
	cmd.Flags().StringVar(&format, "format", "dot", "dot or svg")
	return cmd
}

func pictureOf(name string, reply *operatorv1.GraphReply) picture.Graph {
	g := picture.Graph{Title: "Objects around " + name}
	for _, n := range reply.Nodes {
		g.Nodes = append(g.Nodes, picture.Node{Name: n.Ref, Phase: n.Phase, Bold: n.Selected, Note: oneLine(n.Error)})
	}
	for _, e := range reply.Edges {
		g.Edges = append(g.Edges, picture.Edge{From: e.From, To: e.To, Label: e.Label, Met: e.Met})
	}
	return g
}
