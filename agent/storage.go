package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
)

// trialEvery is how often a state file that took no write is tried again.
const trialEvery = 5 * time.Second

// storage keeps the condition that the state file can be written. A failed write ends it. Only a trial begins it again: an
// event's write may fit where the next one does not.
type storage struct {
	try    func() error
	health *health.Conditions
	log    *slog.Logger
	failed chan struct{} // holds a token when a write has failed
}

func newStorage(s *statefile.File, h *health.Conditions, log *slog.Logger) *storage {
	h.Advise(health.State)
	w := &storage{try: s.Try, health: h, log: log, failed: make(chan struct{}, 1)}
	s.OnFull = w.fail
	return w
}

// fail ends the condition.
func (w *storage) fail(err error) {
	if w.health.Holds(health.State) {
		w.log.Error("state file cannot be written; no pod can be added", "err", err)
	}
	w.health.Set(health.State, false, "the state file cannot be written, so no pod can be added: "+err.Error())
	select {
	case w.failed <- struct{}{}:
	default: // trials are under way
	}
}

// run tries to write after each failure until that succeeds.
func (w *storage) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.failed:
		}
		if err := w.recover(ctx); err != nil {
			return err
		}
	}
}

func (w *storage) recover(ctx context.Context) error {
	tick := time.NewTicker(trialEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		err := w.try()
		if err == nil {
			w.health.Set(health.State, true, "")
			w.log.Info("state file can be written again")
			return nil
		}
		w.health.Set(health.State, false, "the state file cannot be written, so no pod can be added: "+err.Error())
	}
}
