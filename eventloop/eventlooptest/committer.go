// Package eventlooptest has a committer and a saver in memory, for tests of handlers.
package eventlooptest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/weftnet/weft/eventloop"
)

// Committer keeps the values of changes in memory, as a dataplane that obeys at once.
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

// Hook is told of a change; its error fails that.
type Hook func(ctx context.Context, c eventloop.Change) error

// Before sets what is asked before a change is applied; nil is nothing. If it fails
// an atomic change, that counts as undone.
func (m *Committer) Before(h Hook) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = h
}

// After sets what is asked when a change is applied; nil is nothing. If it fails one,
// the loop has to undo that.
func (m *Committer) After(h Hook) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.after = h
}

// Stuck sets what names the keys of a change to be reported as stuck; nil is nothing.
func (m *Committer) Stuck(f func(c eventloop.Change) []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stuck = f
}

// Commit applies c.
func (m *Committer) Commit(ctx context.Context, c eventloop.Change) (eventloop.Outcome, error) {
	m.mu.Lock()
	before, after, stuck := m.before, m.after, m.stuck
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
	out.Operations = len(c.Set)
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
		m.values, m.external = make(map[string]any), make(map[string]any)
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

// Values returns what is committed.
func (m *Committer) Values() map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.values)
}

// External returns what is committed of external configuration only.
func (m *Committer) External() map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.external)
}

// Changes returns the changes that were applied, oldest first.
func (m *Committer) Changes() []eventloop.Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.changes)
}

// SetDrift makes Drift report these keys.
func (m *Committer) SetDrift(keys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drift = keys
}

// Drift returns what SetDrift said.
func (m *Committer) Drift(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.drift), nil
}
