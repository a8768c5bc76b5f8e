package kvscheduler

import "fmt"

// note remembers that the applied value of an object changed.
func (s *state) note(id int32) {
	if s.cfg.Journal != nil {
		s.noted = append(s.noted, id)
	}
}

// writeJournal writes the last applied values of what changed.
func (s *state) writeJournal() error {
	if len(s.noted) == 0 {
		return nil
	}
	entries := make([]JournalEntry, 0, len(s.noted))
	for _, id := range s.noted {
		n := s.g.nodes[id]
		if n.k == nil || !n.k.backed || n.foreign {
			continue
		}
		e := JournalEntry{Ref: n.ref.String()}
		if n.have != nil {
			b, err := n.k.encode(n.have)
			if err != nil {
				return fmt.Errorf("journal %s: encode: %w", n.ref, err)
			}
			e.V = b
			if n.k.hashes {
				e.Hash = n.k.hash(n.have)
			}
		}
		entries = append(entries, e)
	}
	s.noted = s.noted[:0]
	if err := s.cfg.Journal.Append(entries); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// loadJournal takes the last applied values of the previous life. What cannot be read is left out: it only makes a
// resync less sure of fields that cannot be dumped.
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
		s.g.nodes[s.g.intern(ref)].last = v
	}
	return nil
}
