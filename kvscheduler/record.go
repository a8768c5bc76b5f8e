package kvscheduler

import "time"

// Record tells what one request did: asked, planned, done, undone and left waiting. Values in it are redacted.
type Record struct {
	Seq      uint64        `json:"seq"`
	Ticket   uint64        `json:"ticket,omitempty"` // what Submit returned
	Event    uint64        `json:"event,omitempty"`  // Txn.Event
	Origin   string        `json:"origin"`           // txn, plan, resync, report (a resync that is a dry run), retry, event
	Source   string        `json:"source,omitempty"`
	Label    string        `json:"label,omitempty"`
	Merged   []uint64      `json:"merged,omitempty"` // transactions served by the same plan
	Start    time.Time     `json:"start"`
	Queued   time.Duration `json:"queued"`
	PlanTook time.Duration `json:"plan_took"`
	Took     time.Duration `json:"took"`
	Changed  int           `json:"changed"` // desired values that changed
	Ops      []OpRecord    `json:"ops"`
	Pending  []Why         `json:"pending,omitempty"`  // what waits after this record, and for what
	Undone   bool          `json:"undone,omitempty"`   // everything is as it was before
	Rollback bool          `json:"rollback,omitempty"` // it failed after it had begun, and was taken back as far as that went
	Err      string        `json:"err,omitempty"`
}

// OpRecord is one planned or executed operation.
type OpRecord struct {
	Ref     string        `json:"ref"`
	Verb    string        `json:"verb"`
	Why     string        `json:"why"` // desired, dep:<ref>, recreate, drift, retry, event, undo
	Level   int           `json:"level"`
	Batch   int           `json:"batch"` // number of the backend call within the record, from 1; 0: not called
	At      time.Duration `json:"at"`
	Took    time.Duration `json:"took"`
	Attempt int           `json:"attempt,omitempty"`
	Old     any           `json:"old,omitempty"` // redacted
	New     any           `json:"new,omitempty"` // redacted
	Err     string        `json:"err,omitempty"`
	Outcome string        `json:"outcome,omitempty"` // applied, not applied, unknown, skipped, or what a read back found
}

// Why is an object that waits, and for what.
type Why struct {
	Ref     string   `json:"ref"`
	Missing []string `json:"missing"`
}

// Difference is an object that is not as desired.
type Difference struct {
	Ref        Ref
	Want, Have any // redacted; nil: not desired, or missing
	Reason     string
}
