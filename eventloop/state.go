package eventloop

import (
	"maps"
	"slices"
)

// state is what the loop knows to be desired, as of the last event that ended well.
type state struct {
	desired  map[string]any               // by the handlers
	merged   map[string]any               // the same with external configuration over it, as committed
	external map[string]any               // by external configuration only, as committed
	patches  map[string]map[string][]byte // external configuration by source and key
	drops    map[string][]Drop            // by key, the external values that are left out
}

func newState() state {
	return state{
		desired:  make(map[string]any),
		merged:   make(map[string]any),
		external: make(map[string]any),
		patches:  make(map[string]map[string][]byte),
		drops:    make(map[string][]Drop),
	}
}

// desired returns what the handlers want of key, nil if nothing.
func (l *Loop) desired(key string) any { return l.state.desired[key] }

// externalKeys returns all keys of external configuration, and those it had.
func (s *state) externalKeys() []string {
	keys := make(map[string]bool)
	for _, values := range s.patches {
		for key := range values {
			keys[key] = true
		}
	}
	for key := range s.external {
		keys[key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// adopt makes what an event changed the state.
func (s *state) adopt(txn *Txn, c Change) {
	if c.Resync.rebuilds() {
		s.desired, s.merged, s.external = make(map[string]any), make(map[string]any), make(map[string]any)
	}
	apply(s.desired, txn.settings)
	apply(s.merged, c.Set)
	apply(s.external, c.External)
}

// inverse returns the change that brings back what c changes.
func (s *state) inverse(c Change) Change {
	return Change{
		Event:    c.Event,
		Label:    "undo " + c.Label,
		Set:      before(s.merged, c.Set),
		External: before(s.external, c.External),
	}
}

func apply(values map[string]any, settings []Setting) {
	for _, s := range settings {
		if s.Value == nil {
			delete(values, s.Key)
		} else {
			values[s.Key] = s.Value
		}
	}
}

// before returns the old values of what settings set, newest first.
func before(values map[string]any, settings []Setting) []Setting {
	var old []Setting
	for _, s := range slices.Backward(settings) {
		old = append(old, Setting{s.Key, values[s.Key]})
	}
	return old
}

func keysOf(settings []Setting) []string {
	keys := make([]string, 0, len(settings))
	for _, s := range settings {
		keys = append(keys, s.Key)
	}
	return keys
}
