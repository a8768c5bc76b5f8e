package agent

import (
	"context"
	"slices"

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
	values := slices.DeleteFunc(slices.Clone(ch.External), func(s eventloop.Setting) bool { return s.Value == nil })
	out.Refused = submitExternal(ch, values, func(ch eventloop.Change, set []eventloop.Setting) error {
		rec, err := c.plan(ctx, externalSource, ch, set)
		if rec != nil && !isRefusal(err) {
			out.Records = append(out.Records, rec)
		}
		return err
	})
	return out, err
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
