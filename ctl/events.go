package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/proto/document"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// lastEvents is the default number of events to show.
const lastEvents = 20

func eventsCommand(c *client) *cobra.Command {
	req := &operatorv1.EventsRequest{}
	var since, until string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Lists the events of the agent's event loop, oldest first",
		Example: `  weftctl events --last 5
  weftctl events --since 1h --failed
  weftctl events --pod shop/cart --last 0
  weftctl events --since 2026-03-01T02:00:00Z --until 2026-03-01T03:00:00Z
  weftctl events -f -o json | jq -r 'select(.error != "") | .event'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Follow && until != "" {
				return usageError{errors.New("events: -f prints new events, and --until excludes them: give one of them")}
			}
			if req.After, err = moment(c.now(), "since", since); err == nil {
				req.Before, err = moment(c.now(), "until", until)
			}
			if podErr := checkPod(req.Pod); err == nil && req.Pod != "" && podErr != nil {
				err = usageError{fmt.Errorf("--pod: %w", podErr)}
			}
			if err != nil {
				return err
			}
			if since != "" && !cmd.Flags().Changed("last") {
				req.Last = 0
			}
			agent := c.agent
			list := listEvents
			if req.Follow {
				agent.timeout = 0
				list = followEvents
			}
			return agent.connect(cmd.Context(), func(ctx context.Context, api operatorv1.OperationsClient) error {
				stream, err := api.Events(ctx, req)
				if err != nil {
					return err
				}
				return list(ctx, c, stream)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&req.Follow, "follow", "f", false, "print new events until interrupted")
	flags.Uint32Var(&req.Last, "last", lastEvents,
		"maximum number of recorded events to show; 0, the default with --since, shows all")
	flags.StringVar(&since, "since", "",
		"only events from this time on: a duration before now (1h), a time of today (02:30) or RFC 3339")
	flags.StringVar(&until, "until", "", "only events before this time, in the forms of --since")
	flags.StringVar(&req.Pod, "pod", "", "only events of this pod, NAMESPACE/NAME")
	flags.BoolVar(&req.Failed, "failed", false, "only events that failed, were undone or refused")
	return cmd
}

// moment parses the time of a flag; "" is no time. Times of day are in the operator's time zone.
func moment(now time.Time, flag, text string) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no time
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return timestamppb.New(now.Add(-d)), nil
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			year, month, day := now.Date()
			return timestamppb.New(time.Date(year, month, day, t.Hour(), t.Minute(), t.Second(), 0,
				now.Location())), nil
		}
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return timestamppb.New(t), nil
		}
	}
	return nil, usageError{
		fmt.Errorf(
			"--%s %q: must be a duration such as 1h, a time of today such as 02:30, or a time such as 2026-03-01T02:30:00Z",
			flag, text),
	}
}

func eventCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:               "event NUMBER",
		Short:             "Shows one event: steps, handlers with their changes, transactions",
		Example:           "  weftctl event 42",
		Args:              usage(cobra.MatchAll(cobra.ExactArgs(1), isNumber)),
		ValidArgsFunction: completeEvents(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq := numberOf(args[0])
			events, err := readEvents(cmd.Context(), c.agent, &operatorv1.EventsRequest{Since: seq, Last: 0})
			if err != nil {
				return err
			}
			if len(events) == 0 || events[0].Seq != seq {
				return fmt.Errorf("no event %d is recorded; weftctl events lists them", seq)
			}
			e := events[0]
			return c.show(e, func() { printEvent(&c.printer, e) })
		},
	}
}

// readEvents reads recorded events.
func readEvents(
	ctx context.Context, a agent, req *operatorv1.EventsRequest,
) (events []*operatorv1.EventRecord, err error) {
	err = a.connect(ctx, func(ctx context.Context, api operatorv1.OperationsClient) error {
		stream, err := api.Events(ctx, req)
		if err != nil {
			return err
		}
		for {
			e, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			events = append(events, e)
		}
	})
	return events, err
}

func printEvent(p *printer, e *operatorv1.EventRecord) {
	p.printf("event %d  %s\n", e.Seq, printable(e.Event))
	p.printf("arrived  %s, queued %s, took %s\n", p.clock(e.Arrived), took(e.Queued), took(e.Took))
	p.printf("result   %s\n", eventResult(p, e, whole))
	if len(e.Owners) > 0 {
		p.printf("concerns %s\n", printable(ownersText(e.Owners)))
	}
	if e.CancelledBy != "" {
		p.printf("cancelled by %s\n", oneLine(e.CancelledBy))
	}
	if len(e.Steps) > 0 {
		p.printf("\n")
		g := newGrid("step", "took", "error")
		for _, s := range e.Steps {
			g.row(s.Name, took(s.Took), p.bad(errorLine(s.Error)))
		}
		p.printGrid(g, "")
	}
	for _, h := range e.Handlers {
		p.printf("\n%s  %s\n", h.Name, strings.TrimSpace(took(h.Took)+"  "+p.bad(errorLine(h.Error))))
		for _, change := range h.Changes {
			p.printf("  %s\n", printable(change))
		}
	}
	printEventRest(p, e)
}

// named returns the key of a pending or stuck object of an event with its owners.
func named(e *operatorv1.EventRecord, key string) string {
	if name := e.OwnerNames[key]; name != "" {
		return key + " of " + printable(name)
	}
	return key
}

// sharedText says with which events an event shares its transactions, so that the operations of these are not mistaken
// for its own.
func sharedText(e *operatorv1.EventRecord) string {
	if len(e.SharedWith) == 0 {
		return ""
	}
	var names []string
	for _, seq := range e.SharedWith {
		names = append(names, eventNumber(seq))
	}
	return fmt.Sprintf(" (%s of this event, the others of %s)", counted(int(e.Operations), "operation"),
		strings.Join(names, ", "))
}

// printEventRest prints the rest of an event: its transactions, and the objects that it left behind.
func printEventRest(p *printer, e *operatorv1.EventRecord) {
	if len(e.Transactions)+len(e.Stuck)+len(e.Pending)+len(e.Drops)+len(e.Verify) > 0 {
		p.printf("\n")
	}
	for _, seq := range e.Transactions {
		p.printf("transaction %d%s: weftctl transaction %d\n", seq, sharedText(e), seq)
	}
	for _, d := range e.Drops {
		p.printf("skipped  %s of %s: %s\n", d.Key, d.Source, oneLine(d.Reason))
	}
	for _, key := range e.Pending {
		if slices.Contains(e.TakenDown, key) {
			p.printf("%s  %s\n", p.bad("taken down"), named(e, key))
			continue
		}
		p.printf("waiting  %s\n", named(e, key))
	}
	for _, key := range e.Stuck {
		p.printf("%s  %s\n", p.bad("left behind"), named(e, key))
	}
	for _, difference := range e.Verify {
		p.printf("verification: %s\n", oneLine(difference))
	}
}

type eventStream = grpc.ServerStreamingClient[operatorv1.EventRecord]

// listEvents prints the recorded events as a table.
func listEvents(_ context.Context, c *client, stream eventStream) error {
	g := newGrid("seq", "time", "event", wide("kind"), spare("ops"), wide("queued"), spare("took"), "result")
	err := receiveEvents(c, stream, func(e *operatorv1.EventRecord) {
		g.row(e.Seq, c.clock(e.Arrived), e.Event, e.Kind, e.Operations, took(e.Queued), took(e.Took),
			eventResult(&c.printer, e, c.brief))
	})
	if err == nil && c.format == "table" {
		c.printGrid(g, "no events")
	}
	return err
}

// followEvents prints each event when it arrives, as a line outside of a table. An interrupt is not an error.
func followEvents(ctx context.Context, c *client, stream eventStream) error {
	err := receiveEvents(c, stream, func(e *operatorv1.EventRecord) {
		c.printf("%s  #%d  %s  (%s, took %s)  %s\n",
			c.clock(e.Arrived), e.Seq, e.Event, counted(int(e.Operations), "operation"), took(e.Took),
			eventResult(&c.printer, e, whole))
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
func receiveEvents(c *client, stream eventStream, table func(*operatorv1.EventRecord)) error {
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch c.format {
		case "table":
			table(e)
		case "name":
			c.printf("%d\n", e.Seq)
		default:
			if err := c.streamed(document.Of(e.ProtoReflect())); err != nil {
				return err
			}
		}
	}
}

// eventResult formats the result of an event; told shortens its error.
func eventResult(p *printer, e *operatorv1.EventRecord, told func(string) string) string {
	text := result(p, e.Undone, e.Error, told)
	if e.Error == "" && len(e.TakenDown) > 0 {
		text = p.bad("took down " + counted(len(e.TakenDown), "object"))
	}
	if e.Refused {
		text = p.bad("refused: ") + told(errorLine(e.Error))
	}
	if e.Repeats > 0 {
		text += fmt.Sprintf(" (repeated %d times)", e.Repeats)
	}
	return text
}

// whole is the text of a result that is not shortened.
func whole(text string) string { return text }

// result formats the result of an event or a transaction; told shortens its error.
func result(p *printer, undone bool, failure string, told func(string) string) string {
	switch {
	case undone:
		return p.bad("undone: ") + told(errorLine(failure))
	case failure != "":
		return p.bad("failed: ") + told(errorLine(failure))
	}
	return p.good("ok")
}
