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
	saver   Saver // nil: values are not durable
	timeout time.Duration
	history *history
	log     *slog.Logger
	owed    owed
}

// owed are the values of best-effort events that could not be saved: the last one of each key, because saves may fail
// for long.
type owed struct {
	order  []owedKey
	values map[owedKey]Saved
}

type owedKey struct{ bucket, key string }

// add adds values, newer than those that are owed.
func (o *owed) add(saves []Saved) {
	if o.values == nil {
		o.values = make(map[owedKey]Saved)
	}
	for _, s := range saves {
		key := owedKey{s.Bucket, s.Key}
		if _, known := o.values[key]; !known {
			o.order = append(o.order, key)
		}
		o.values[key] = s
	}
}

// list returns the values in the order in which their keys were added.
func (o *owed) list() []Saved {
	var all []Saved
	for _, key := range o.order {
		all = append(all, o.values[key])
	}
	return all
}

// save saves the owed values, saves, and the records that are not durable yet, all or none.
func (d *durable) save(ctx context.Context, saves []Saved) error {
	if d.saver == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.timeout)
	defer cancel()
	records, saved := d.history.unsaved()
	all := slices.Concat(d.owed.list(), saves, records)
	if len(all) == 0 {
		return nil
	}
	if err := protect(func() error { return d.saver.Save(ctx, all) }); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSaved, err)
	}
	d.owed = owed{}
	saved()
	return nil
}

// flush saves, while the loop is idle, what no event has saved.
func (d *durable) flush(ctx context.Context) {
	if err := d.save(ctx, nil); err != nil {
		d.log.Warn("records not saved", "err", err)
	}
}
