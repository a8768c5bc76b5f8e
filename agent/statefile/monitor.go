package statefile

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// trialInterval is the time between two trial writes after a failed write.
const trialInterval = 5 * time.Second

// Monitor reports whether the file is writable. A failed write reports an error. Only a trial write reports that the
// file is writable again: the small write of an event may succeed although the next one fails.
type Monitor struct {
	try    func() error
	report func(err error)
	log    *slog.Logger
	failed chan struct{} // has a token after a failed write

	failing atomic.Bool
}

// NewMonitor returns a monitor of the file. It calls report with the error of each failed write and trial, and with nil
// when the file is writable again.
func NewMonitor(f *File, report func(err error), log *slog.Logger) *Monitor {
	m := &Monitor{try: f.try, log: log, failed: make(chan struct{}, 1)}
	m.report = func(err error) {
		if err != nil {
			err = fmt.Errorf("the state file cannot be written, so no pod can be added: %w", err)
		}
		report(err)
	}
	f.OnFull = m.fail
	return m
}

func (m *Monitor) fail(err error) {
	if !m.failing.Swap(true) {
		m.log.Error("state file cannot be written; no pod can be added", "err", err)
	}
	m.report(err)
	select {
	case m.failed <- struct{}{}:
	default: // Run is trying already
	}
}

// Run repeats trial writes after each failure until one succeeds.
func (m *Monitor) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.failed:
		}
		if err := m.recover(ctx); err != nil {
			return err
		}
	}
}

func (m *Monitor) recover(ctx context.Context) error {
	tick := time.NewTicker(trialInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if m.Try() == nil {
			return nil
		}
	}
}

// Try returns nil if the file is writable. After a failed write it makes a trial write.
func (m *Monitor) Try() error {
	if !m.failing.Load() {
		return nil
	}
	err := m.try()
	m.report(err)
	if err == nil && m.failing.Swap(false) {
		m.log.Info("state file can be written again")
	}
	return err
}
