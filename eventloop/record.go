package eventloop

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Record is what is known about one event. It holds keys, never values.
type Record struct {
	Seq       uint64    `json:"seq"`
	Cause     uint64    `json:"cause,omitempty"` // the event that this one follows up
	Event     string    `json:"event"`
	Type      string    `json:"type"`
	Kind      string    `json:"kind,omitempty"`      // update, or the kind of resync; empty if it never ran
	Direction string    `json:"direction,omitempty"` // forward or reverse
	Atomic    bool      `json:"atomic,omitempty"`
	Order     []string  `json:"order,omitempty"`    // the handlers that take part
	LeftOut   []string  `json:"left_out,omitempty"` // those that do not handle this event
	Coalesced int       `json:"coalesced,omitempty"`
	Arrived   time.Time `json:"arrived"`
	Started   time.Time `json:"started,omitzero"` // zero if it never reached the loop

	Queued time.Duration `json:"queued"`
	Took   time.Duration `json:"took"` // since it started

	Steps    []Step       `json:"steps,omitempty"`
	Handlers []HandlerRun `json:"handlers,omitempty"`

	Changes  int    `json:"changes,omitempty"`
	External int    `json:"external,omitempty"` // values of external configuration that were merged
	Drops    []Drop `json:"drops,omitempty"`    // values of external configuration that were not

	Transactions []uint64 `json:"transactions,omitempty"` // removals may share one
	Operations   int      `json:"operations,omitempty"`   // of these transactions
	Pending      []string `json:"pending,omitempty"`
	Undone       bool     `json:"undone,omitempty"`
	Stuck        []string `json:"stuck,omitempty"` // could not be undone or applied

	Repeats int       `json:"repeats,omitempty"` // of an event that never reached the loop: how often it was refused again for the same reason
	Last    time.Time `json:"last,omitzero"`     // when the last repeat arrived

	CancelledBy string   `json:"cancelled_by,omitempty"`
	Verify      []string `json:"verify,omitempty"` // differences that verification found
	Err         string   `json:"err,omitempty"`
	Stack       string   `json:"stack,omitempty"` // of a panic
}

// Drop is a value of external configuration that was left out. Every event that touches its key names it again.
type Drop struct {
	Key    string `json:"key"`
	Source string `json:"source"`
	Reason string `json:"reason"`
}

// Step is the time of one of the thirteen steps. Number 9 is there twice: commit and save. Of removals that share these, it is the time
// of both for all of them, and "adopt" comes before.
type Step struct {
	Number int           `json:"number"`
	Name   string        `json:"name"`
	Took   time.Duration `json:"took"`
	Err    string        `json:"err,omitempty"`
}

// HandlerRun is the part of one handler in an event.
type HandlerRun struct {
	Name    string        `json:"name"`
	Took    time.Duration `json:"took"`
	Err     string        `json:"err,omitempty"`
	Changes []string      `json:"changes,omitempty"` // "put KEY", "delete KEY"
}

// String returns the record in one line.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s", r.Seq, r.Event)
	if r.Cause != 0 {
		fmt.Fprintf(&b, " (after #%d)", r.Cause)
	}
	switch {
	case r.Started.IsZero():
		b.WriteString(": not handled")
	case r.Err != "" && r.Undone:
		fmt.Fprintf(&b, ": undone after %s", r.Took)
	case r.Err != "":
		fmt.Fprintf(&b, ": failed after %s", r.Took)
	default:
		fmt.Fprintf(&b, ": ok, %d changes, %d operations, %s", r.Changes, r.Operations, r.Took)
	}
	if r.Err != "" {
		b.WriteString(": " + strings.ReplaceAll(r.Err, "\n", "; "))
	}
	if len(r.Stuck) > 0 {
		b.WriteString(", left behind: " + strings.Join(r.Stuck, ", "))
	}
	if len(r.Verify) > 0 {
		fmt.Fprintf(&b, ", verification found %d differences", len(r.Verify))
	}
	return b.String()
}

// clone returns a copy that shares nothing with r.
func (r Record) clone() Record {
	r.Order, r.LeftOut = slices.Clone(r.Order), slices.Clone(r.LeftOut)
	r.Steps, r.Handlers = slices.Clone(r.Steps), slices.Clone(r.Handlers)
	for i := range r.Handlers {
		r.Handlers[i].Changes = slices.Clone(r.Handlers[i].Changes)
	}
	r.Drops, r.Verify = slices.Clone(r.Drops), slices.Clone(r.Verify)
	r.Transactions, r.Pending, r.Stuck = slices.Clone(r.Transactions), slices.Clone(r.Pending), slices.Clone(r.Stuck)
	return r
}

func recordKey(seq uint64) string { return fmt.Sprintf("%020d", seq) }
