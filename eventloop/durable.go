package eventloop

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// durable makes values and records durable.
type durable struct {
	saver   Saver // nil: nothing is durable
	timeout time.Duration
	history *history
	log     *slog.Logger
	owed    []Saved // values of best-effort events whose save failed
}

// save saves the owed values, saves, and the records that are not durable yet, all or none.
func (d *durable) save(ctx context.Context, saves []Saved) error {
	if d.saver == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.timeout)
	defer cancel()
	records, saved := d.history.unsaved()
	all := slices.Concat(d.owed, saves, records)
	if len(all) == 0 {
		return nil
	}
	if err := protect(func() error { return d.saver.Save(ctx, all) }); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSaved, err)
	}
	d.owed = nil
	saved()
	return nil
}

// flush saves, while the loop is idle, what no event has saved.
func (d *durable) flush(ctx context.Context) {
	if err := d.save(ctx, nil); err != nil {
		d.log.Warn("records not saved", "err", err)
	}
}
