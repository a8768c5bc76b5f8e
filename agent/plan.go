package agent

import (
	"context"

	"github.com/weftnet/weft/agent/planning"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
)

// Plan returns what apply would do with a change now, without doing it: the transactions in the order of apply, each
// planned on the state before all of them.
func (c *committer) Plan(ctx context.Context, ch eventloop.Change) (planning.Transactions, error) {
	var out planning.Transactions
	if given := withoutValue(ch.External); len(given) > 0 {
		rec, err := c.plan(ctx, externalSource, ch, given)
		if err != nil && ch.Atomic {
			return out, err
		}
		out.Records = append(out.Records, rec)
	}
	rec, err := c.plan(ctx, ownSource, ch, ch.Set)
	if rec != nil {
		out.Records = append(out.Records, rec)
	}
	if err != nil && ch.Atomic || len(ch.External) == 0 {
		return out, err
	}
	c.planExternal(ctx, ch, &out)
	return out, err
}

// planExternal plans the values of external configuration, together or, if the scheduler refuses them as a whole, one
// by one.
func (c *committer) planExternal(ctx context.Context, ch eventloop.Change, out *planning.Transactions) {
	var values []eventloop.Setting
	for _, s := range ch.External {
		if s.Value != nil {
			values = append(values, s)
		}
	}
	rec, err := c.plan(ctx, externalSource, ch, values)
	if !isRefusal(err) {
		out.Records = append(out.Records, rec)
		return
	}
	out.Refused = make(map[string]string)
	for _, s := range values {
		rec, err := c.plan(ctx, externalSource, ch, []eventloop.Setting{s})
		if isRefusal(err) {
			out.Refused[s.Key] = err.Error()
			continue
		}
		out.Records = append(out.Records, rec)
	}
}

func (c *committer) plan(
	ctx context.Context, source string, ch eventloop.Change, set []eventloop.Setting,
) (*kvscheduler.Record, error) {
	if len(set) == 0 {
		return &kvscheduler.Record{}, nil
	}
	txn, err := c.transaction(source, ch, set)
	if err != nil {
		return nil, err
	}
	return c.scheduler.Plan(ctx, txn)
}
