package drift

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Audit is the result of an audit that an operator requested.
type Audit struct {
	Objects  int       // objects that were compared
	Found    []Finding // objects that drifted, or wait although they were applied
	Repaired bool      // the repair of the drift has ended; false if drift is reported only
	Err      error     // of the comparison or of the repair
}

// Finding is an object that drifted.
type Finding struct {
	Ref  string
	Text string // describes the difference
}

// auditCall receives the result of an audit.
type auditCall chan Audit

var errReplay = errors.New(
	"the dataplane is being replayed, which compares and repairs all objects: try again after it")

// Now audits all kinds at once, and waits for the repair.
func (d *Monitor) Now(ctx context.Context) (Audit, error) {
	call := make(auditCall, 1)
	select {
	case d.audits <- call:
	case <-ctx.Done():
		return Audit{}, ctx.Err()
	}
	select {
	case result := <-call:
		return result, nil
	case <-ctx.Done():
		return Audit{}, ctx.Err()
	}
}

func (d *Monitor) audit(ctx context.Context) Audit {
	result := Audit{}
	view := d.Scheduler.View()
	for _, kind := range wire.Kinds() {
		for name := range view.All(kvscheduler.Kind(kind)) {
			if _, desired := view.Desired(kvscheduler.Ref{Kind: kvscheduler.Kind(kind), Name: name}); desired {
				result.Objects++
			}
		}
	}
	found, err := d.compare(ctx, kvscheduler.ResyncOpt{})
	result.Err = err
	of := d.Owners.Now()
	for _, w := range d.Scheduler.LostObjects() {
		text := fmt.Sprintf("%s was applied, and waits for %s", of.Of(w.Ref).Named(w.Ref),
			strings.Join(w.Missing, ", "))
		result.Found = append(result.Found, Finding{Ref: w.Ref, Text: text})
	}
	waiting := len(result.Found)
	if len(found) == 0 {
		return result
	}
	byRef := map[string][]kvscheduler.OpRecord{}
	for _, op := range found {
		if byRef[op.Ref] == nil {
			result.Found = append(result.Found, Finding{Ref: op.Ref})
		}
		byRef[op.Ref] = append(byRef[op.Ref], op)
	}
	for i := range result.Found[waiting:] {
		f := &result.Found[waiting+i]
		f.Text = describeDrift(byRef[f.Ref], of)
	}
	err = d.handle(ctx, found)
	result.Repaired = d.Repairs && err == nil
	result.Err = errors.Join(result.Err, err)
	return result
}
