// Package eventlooptest has a Committer and a Saver that keep values in memory.
package eventlooptest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/weftnet/weft/eventloop"
)

// Committer applies changes at once, in memory.
type Committer struct {
	mu       sync.Mutex
	before   Hook
	after    Hook
	stuck    func(c eventloop.Change) []string
	changes  []eventloop.Change
	values   map[string]any
	external map[string]any
	drift    []string
}

// Hook is called for a change; the commit returns its error.
type Hook func(ctx context.Context, c eventloop.Change) error

// Before sets the hook that is called before a change is applied. If it fails an atomic change, that is reported as
// undone.
func (m *Committer) Before(h Hook) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = h
}

// After sets the hook that is called after a change was applied. If it fails, the loop must undo the change.
func (m *Committer) After(h Hook) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.after = h
}

// Stuck sets the function that returns the stuck keys of a change; nil for none.
func (m *Committer) Stuck(f func(c eventloop.Change) []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stuck = f
}

// Commit applies c.
func (m *Committer) Commit(ctx context.Context, c eventloop.Change) (eventloop.Outcome, error) {
	m.mu.Lock()
	before := m.before
	after := m.after
	stuck := m.stuck
	m.mu.Unlock()
	out := eventloop.Outcome{}
	if stuck != nil {
		out.Stuck = stuck(c)
	}
	if before != nil {
		if err := before(ctx, c); err != nil {
			out.Undone = c.Atomic
			return out, err
		}
	}
	m.apply(c)
	for _, s := range c.Set {
		out.Operations = append(out.Operations, s.Key)
	}
	out.Transactions = []uint64{c.Event}
	if after != nil {
		if err := after(ctx, c); err != nil {
			return out, err
		}
	}
	if len(out.Stuck) > 0 {
		return out, errors.New("some keys are stuck")
	}
	return out, nil
}

func (m *Committer) apply(c eventloop.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes = append(m.changes, c)
	if m.values == nil || c.Resync == eventloop.Full || c.Resync == eventloop.Upstream {
		m.values = make(map[string]any)
		m.external = make(map[string]any)
	}
	for values, settings := range map[*map[string]any][]eventloop.Setting{&m.values: c.Set, &m.external: c.External} {
		for _, s := range settings {
			if s.Value == nil {
				delete(*values, s.Key)
			} else {
				(*values)[s.Key] = s.Value
			}
		}
	}
}

// Values returns the committed values of Set.
func (m *Committer) Values() map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.values)
}

// External returns the committed values of External.
func (m *Committer) External() map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.external)
}

// Changes returns the applied changes, oldest first.
func (m *Committer) Changes() []eventloop.Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.changes)
}

// SetDrift sets the result of Drift.
func (m *Committer) SetDrift(keys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drift = keys
}

// Drift returns the keys of SetDrift.
func (m *Committer) Drift(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.drift), nil
}
