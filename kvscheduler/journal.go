package kvscheduler

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// journal keeps the applied values of objects for the next run, if there is a Journal to write them to.
type journal struct {
	to    Journal   // nil: none
	noted []plan.ID // objects with changed applied values
}

// note marks the applied value of an object.
func (j *journal) note(id plan.ID) {
	if j.to != nil {
		j.noted = append(j.noted, id)
	}
}

// write writes the applied values that changed.
func (j *journal) write(g *plan.Graph) error {
	if len(j.noted) == 0 {
		return nil
	}
	entries := make([]JournalEntry, 0, len(j.noted))
	var errs []error
	for _, id := range j.noted {
		n := g.Node(id)
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
	j.noted = j.noted[:0]
	if err := j.to.Append(entries); err != nil {
		errs = append(errs, fmt.Errorf("journal: %w", err))
	}
	return errors.Join(errs...)
}

// load gives the graph the last applied values of the previous run. Entries that cannot be read are skipped: without
// them a resync recreates objects with fields that cannot be dumped.
func (j *journal) load(g *plan.Graph, kinds map[Kind]*kind, log *slog.Logger) error {
	if j.to == nil {
		return nil
	}
	last := make(map[Ref][]byte)
	for e, err := range j.to.Load() {
		if err != nil {
			return fmt.Errorf("load journal: %w", err)
		}
		ref, err := ParseRef(e.Ref)
		if err != nil || kinds[ref.Kind] == nil {
			log.Warn("journal entry left out", "object", e.Ref, "err", err)
			continue
		}
		last[ref] = e.V
	}
	for ref, b := range last {
		if b == nil {
			continue
		}
		v, err := kinds[ref.Kind].decode(b)
		if err != nil {
			log.Warn("journal entry left out", "object", ref, "err", err)
			continue
		}
		g.Node(g.Intern(ref)).Last = v
	}
	return nil
}
