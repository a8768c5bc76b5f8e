package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) eventsCommand() *cobra.Command {
	req := &weftv1.EventsRequest{}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Lists the events of the agent's event loop, oldest first",
		Example: `  weftctl events --last 5
  weftctl events -f -o json | jq -r 'select(.err) | .event'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Follow {
				return c.askFor(cmd.Context(), 0, func(ctx context.Context, agent weftv1.OperationsClient) error {
					return c.followEvents(ctx, agent, req)
				})
			}
			return c.ask(cmd.Context(), func(ctx context.Context, agent weftv1.OperationsClient) error {
				return c.events(ctx, agent, req)
			})
		},
	}
	cmd.Flags().BoolVarP(&req.Follow, "follow", "f", false, "print new events until interrupted")
	cmd.Flags().Uint32Var(&req.Last, "last", 20, "maximum number of recorded events to show; 0 shows all")
	return cmd
}

func (c *client) events(ctx context.Context, agent weftv1.OperationsClient, req *weftv1.EventsRequest) error {
	stream, err := agent.Events(ctx, req)
	if err != nil {
		return err
	}
	g := newGrid("seq", "time", "event", "kind", "ops", "queued", "took", "result")
	err = receive(stream, func(e *weftv1.EventRecord) error {
		if c.format != "table" {
			return c.streamed(recordOf(e.Json, e))
		}
		g.row(e.Seq, c.clock(e.Arrived), e.Event, e.Kind, e.Operations, took(e.Queued), took(e.Took), c.eventResult(e))
		return nil
	})
	if err == nil && c.format == "table" {
		c.printGrid(g, "no events")
	}
	return err
}

// followEvents prints each event when it arrives, as a line outside of a table. An interrupt is not an error.
func (c *client) followEvents(ctx context.Context, agent weftv1.OperationsClient, req *weftv1.EventsRequest) error {
	stream, err := agent.Events(ctx, req)
	if err != nil {
		return err
	}
	err = receive(stream, func(e *weftv1.EventRecord) error {
		if c.format != "table" {
			return c.streamed(recordOf(e.Json, e))
		}
		c.printf("%s  #%d  %s  (%s, took %s)  %s\n",
			c.clock(e.Arrived), e.Seq, e.Event, counted(int(e.Operations), "operation"), took(e.Took), c.eventResult(e))
		return nil
	})
	select {
	case <-ctx.Done():
		return nil
	default:
	}
	if err == nil {
		return fmt.Errorf("the agent at %s has stopped", c.socket)
	}
	return err
}

func receive(stream grpc.ServerStreamingClient[weftv1.EventRecord], each func(*weftv1.EventRecord) error) error {
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

func (c *client) eventResult(e *weftv1.EventRecord) string {
	result := c.result(e.Undone, e.Error)
	if e.Refused {
		result = c.bad("refused: ") + oneLine(e.Error)
	}
	if e.Repeats > 0 {
		result += fmt.Sprintf(" (repeated %d times)", e.Repeats)
	}
	if e.Cause != 0 {
		result += fmt.Sprintf(" (caused by #%d)", e.Cause)
	}
	return result
}

// result formats the result of an event or a transaction.
func (c *client) result(undone bool, failure string) string {
	switch {
	case undone:
		return c.bad("undone: ") + oneLine(failure)
	case failure != "":
		return c.bad("failed: ") + oneLine(failure)
	}
	return c.good("ok")
}
