package planning

import (
	"maps"
	"slices"
	"strings"

	"github.com/weftnet/weft/kvscheduler"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// Transactions are the plans of one change, in the order in which they would be committed.
type Transactions struct {
	Records []*kvscheduler.Record
	Refused map[string]string // values of external configuration that the scheduler does not accept, with reasons
}

// addTo adds the operations and the waiting objects of the plans to a reply.
func (t *Transactions) addTo(reply *operatorv1.PlanReply) {
	step := uint32(0)
	for _, rec := range t.Records {
		level := -1
		for _, op := range rec.Ops {
			if op.Level != level {
				step = step + 1
				level = op.Level
			}
			reply.Operations = append(reply.Operations, &operatorv1.PlannedOperation{
				Ref: op.Ref, Verb: op.Verb, Why: op.Why, Step: step, Fields: changesOf(op),
			})
		}
		for _, w := range rec.Pending {
			reply.Waiting = append(reply.Waiting, w.Ref+" waits for "+strings.Join(w.Missing, ", "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Refused)) {
		reply.Skipped = append(reply.Skipped, key+": "+t.Refused[key])
	}
}

// changesOf lists the fields that an update changes.
func changesOf(op kvscheduler.OpRecord) []*operatorv1.FieldDiff {
	if op.Old == nil || op.New == nil {
		return nil
	}
	return fieldsOf([sides]any{desired: op.New, applied: op.Old}, true)
}
