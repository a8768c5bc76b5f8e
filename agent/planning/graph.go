package planning

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// Bounds of a graph: a larger one is no picture any more.
const (
	maxDepth = 16
	maxNodes = 500
)

// graph draws objects with their relations.
type graph struct {
	*objects
}

// Graph returns the objects around the selected ones, with their relations. It reads the scheduler's last snapshot.
func (g *graph) Graph(_ context.Context, req *operatorv1.GraphRequest) (*operatorv1.GraphReply, error) {
	switch {
	case req.Selector == "":
		return nil, status.Error(codes.InvalidArgument,
			"the key of the graph is empty: name an object or NAMESPACE/NAME of a pod")
	case req.Depth > maxDepth:
		return nil, status.Errorf(codes.InvalidArgument, "depth %d: at most %d is possible", req.Depth, maxDepth)
	}
	selected, err := g.selected(req.Selector)
	if err != nil {
		return nil, err
	}
	view := g.scheduler.View()
	refs, relations, omitted := g.scheduler.Neighbours(selected, int(req.Depth), maxNodes)
	reply := &operatorv1.GraphReply{Omitted: uint32(omitted)}
	for _, ref := range refs {
		node := &operatorv1.GraphNode{
			Ref:      ref.String(),
			Phase:    g.phaseOf(view, ref),
			Selected: slices.Contains(selected, ref),
		}
		if st, _ := view.Status(ref); st.Err != nil {
			node.Error = st.Err.Error()
		}
		reply.Nodes = append(reply.Nodes, node)
	}
	for _, r := range relations {
		reply.Edges = append(reply.Edges, &operatorv1.GraphEdge{
			From:  r.From.String(),
			To:    r.To.String(),
			Label: r.Label,
			Met:   r.Met,
		})
	}
	return reply, nil
}
