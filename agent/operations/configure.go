package operations

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/weftnet/weft/agent/external"
	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// configurer replaces external configuration.
type configurer struct {
	loop      *eventloop.Loop
	scheduler *kvscheduler.Scheduler
	owners    *owners.Index
}

// Configure replaces the external configuration of a source.
func (c *configurer) Configure(
	ctx context.Context, req *operatorv1.ConfigureRequest,
) (*operatorv1.ConfigureReply, error) {
	if req.Source == "" {
		return &operatorv1.ConfigureReply{Error: "the name of the source is empty"}, nil
	}
	values, err := external.Parse(req.Document)
	if err != nil {
		return &operatorv1.ConfigureReply{Error: err.Error()}, nil //nolint:nilerr // an error of the request, not of the call
	}
	rec, err := c.loop.SetExternal(ctx, req.Source, values)
	reply := &operatorv1.ConfigureReply{Error: textOf(err)}
	if rec != nil {
		reply.Event = rec.Seq
		reply.Dropped = droppedOf(rec, req.Source)
		c.addUnsettled(reply, values)
	}
	return reply, nil
}

// addUnsettled adds the pending and failed values to a reply.
func (c *configurer) addUnsettled(reply *operatorv1.ConfigureReply, values map[string][]byte) {
	view := c.scheduler.View()
	of := c.owners.Now()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		ref, err := kvscheduler.ParseRef(key)
		if err != nil {
			continue // listed in Dropped
		}
		switch status, _ := view.Status(ref); {
		case status.Err != nil:
			reply.Failed = append(reply.Failed, of.Of(key).Named(key)+": "+status.Err.Error())
		case status.Phase == kvscheduler.Pending:
			reply.Waiting = append(reply.Waiting,
				of.Of(key).Named(key)+" waits for "+strings.Join(status.Missing, ", "))
		}
	}
}

// droppedOf lists the values of the source that the event dropped.
func droppedOf(rec *eventloop.Record, source string) []string {
	var dropped []string
	for _, d := range rec.Drops {
		if d.Source == source {
			dropped = append(dropped, d.Key+": "+d.Reason)
		}
	}
	return dropped
}
