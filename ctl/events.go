package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/weftnet/weft/proto/document"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func eventsCommand(c *client) *cobra.Command {
	req := &weftv1.EventsRequest{}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Lists the events of the agent's event loop, oldest first",
		Example: `  weftctl events --last 5
  weftctl events -f -o json | jq -r 'select(.err) | .event'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			agent, list := c.agent, listEvents
			if req.Follow {
				agent.timeout, list = 0, followEvents
			}
			return agent.connect(cmd.Context(), func(ctx context.Context, api weftv1.OperationsClient) error {
				stream, err := api.Events(ctx, req)
				if err != nil {
					return err
				}
				return list(ctx, c, stream)
			})
		},
	}
	cmd.Flags().BoolVarP(&req.Follow, "follow", "f", false, "print new events until interrupted")
	cmd.Flags().Uint32Var(&req.Last, "last", 20, "maximum number of recorded events to show; 0 shows all")
	return cmd
}

type eventStream = grpc.ServerStreamingClient[weftv1.EventRecord]

// listEvents prints the recorded events as a table.
func listEvents(_ context.Context, c *client, stream eventStream) error {
	g := newGrid("seq", "time", "event", "kind", "ops", "queued", "took", "result")
	err := receiveEvents(c, stream, func(e *weftv1.EventRecord) {
		g.row(e.Seq, c.clock(e.Arrived), e.Event, e.Kind, e.Operations, took(e.Queued), took(e.Took), eventResult(&c.printer, e))
	})
	if err == nil && c.format == "table" {
		c.printGrid(g, "no events")
	}
	return err
}

// followEvents prints each event when it arrives, as a line outside of a table. An interrupt is not an error.
func followEvents(ctx context.Context, c *client, stream eventStream) error {
	err := receiveEvents(c, stream, func(e *weftv1.EventRecord) {
		c.printf("%s  #%d  %s  (%s, took %s)  %s\n",
			c.clock(e.Arrived), e.Seq, e.Event, counted(int(e.Operations), "operation"), took(e.Took), eventResult(&c.printer, e))
	})
	select {
	case <-ctx.Done():
		return nil
	default:
	}
	if err == nil {
		return fmt.Errorf("the agent at %s has stopped", c.agent.socket)
	}
	return err
}

// receiveEvents prints the events of a stream: with the function table, or as JSON or YAML.
func receiveEvents(c *client, stream eventStream, table func(*weftv1.EventRecord)) error {
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if c.format == "table" {
			table(e)
		} else if err := c.streamed(document.Record(e.Json, e)); err != nil {
			return err
		}
	}
}

func eventResult(p *printer, e *weftv1.EventRecord) string {
	text := result(p, e.Undone, e.Error)
	if e.Refused {
		text = p.bad("refused: ") + oneLine(e.Error)
	}
	if e.Repeats > 0 {
		text += fmt.Sprintf(" (repeated %d times)", e.Repeats)
	}
	if e.Cause != 0 {
		text += fmt.Sprintf(" (caused by #%d)", e.Cause)
	}
	return text
}

// result formats the result of an event or a transaction.
func result(p *printer, undone bool, failure string) string {
	switch {
	case undone:
		return p.bad("undone: ") + oneLine(failure)
	case failure != "":
		return p.bad("failed: ") + oneLine(failure)
	}
	return p.good("ok")
}
