package kvscheduler

import "context"

// Stage changes the desired state and does nothing about it: the next Resync reads the machine back and then brings it
// there. A start is that: what is there already is found before anything is made. Stage is best effort; an invalid value
// is Invalid from now on, and the error says so, but the rest is staged.
func (s *Scheduler) Stage(ctx context.Context, t Txn) error {
	t.Mode = BestEffort
	_, err := s.request(ctx, t, (*state).stageOnly)
	return err
}

func (s *state) stageOnly(_ context.Context, q *request) (*Record, error) {
	a, err := s.admit(q.txn)
	if err != nil {
		return nil, err
	}
	s.rev++
	ids := make([]int32, 0, len(a.undo)+len(a.dirty))
	for _, f := range a.undo {
		ids = append(ids, f.id)
	}
	for _, id := range a.dirty {
		s.g.nodes[id].skipped = true
		s.skipped[id] = struct{}{}
		ids = append(ids, id)
	}
	s.publish(ids)
	return nil, joined(a.invalid)
}

// Redacted is a value as logs and operators may see it.
func (s *Scheduler) Redacted(ref Ref, value any) any {
	if k := s.kinds[ref.Kind]; k != nil && value != nil {
		return k.redact(value)
	}
	return value
}
