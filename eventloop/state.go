package eventloop

import "slices"

// state is the desired state after the last event that was not undone.
type state struct {
	desired map[string]any // by handlers
	merged  map[string]any // desired with external configuration merged over it, as committed
}

func newState() state { return state{desired: make(map[string]any), merged: make(map[string]any)} }

// get returns the value that handlers desire for key, or nil.
func (s *state) get(key string) any { return s.desired[key] }

// adopt makes the changes of an event part of the state.
func (s *state) adopt(txn *Txn, c Change) {
	if c.Resync.rebuilds() {
		s.desired = make(map[string]any)
		s.merged = make(map[string]any)
	}
	apply(s.desired, txn.settings)
	apply(s.merged, c.Set)
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

// oldValues returns the settings that restore the values from before settings, newest first.
func oldValues(values map[string]any, settings []Setting) []Setting {
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
