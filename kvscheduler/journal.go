package kvscheduler

import (
	"errors"
	"fmt"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// note marks the applied value of an object for the journal.
func (s *state) note(id plan.ID) {
	if s.cfg.Journal != nil {
		s.noted = append(s.noted, id)
	}
}

// writeJournal writes the applied values that changed.
func (s *state) writeJournal() error {
	if len(s.noted) == 0 {
		return nil
	}
	entries := make([]JournalEntry, 0, len(s.noted))
	var errs []error
	for _, id := range s.noted {
		n := s.g.Node(id)
		if kindOf(n) == nil || !kindOf(n).backed || n.Foreign() {
			continue
		}
		e := JournalEntry{Ref: n.Ref.String()}
		if n.Have != nil {
			b, err := kindOf(n).encode(n.Have)
			if err != nil {
				errs = append(errs, fmt.Errorf("journal %s: encode: %w", n.Ref, err))
				continue
			}
			e.V = b
			if kindOf(n).hashes {
				e.Hash = kindOf(n).hash(n.Have)
			}
		}
		entries = append(entries, e)
	}
	s.noted = s.noted[:0]
	if err := s.cfg.Journal.Append(entries); err != nil {
		errs = append(errs, fmt.Errorf("journal: %w", err))
	}
	return errors.Join(errs...)
}

// loadJournal loads the last applied values of the previous run. Entries that cannot be read are skipped: without them
// a resync recreates objects with fields that cannot be dumped.
func (s *state) loadJournal() error {
	if s.cfg.Journal == nil {
		return nil
	}
	last := make(map[Ref][]byte)
	for e, err := range s.cfg.Journal.Load() {
		if err != nil {
			return fmt.Errorf("load journal: %w", err)
		}
		ref, err := ParseRef(e.Ref)
		if err != nil || s.kinds[ref.Kind] == nil {
			s.cfg.Logger.Warn("journal entry left out", "object", e.Ref, "err", err)
			continue
		}
		last[ref] = e.V
	}
	for ref, b := range last {
		if b == nil {
			continue
		}
		v, err := s.kinds[ref.Kind].decode(b)
		if err != nil {
			s.cfg.Logger.Warn("journal entry left out", "object", ref, "err", err)
			continue
		}
		s.g.Node(s.g.Intern(ref)).Last = v
	}
	return nil
}
