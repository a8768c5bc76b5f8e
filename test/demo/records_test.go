package main

import (
	"io"
	"strings"
	"testing"
)

func TestTransactionCountsAsUndoneOnlyIfEnoughWasAppliedAndUndone(t *testing.T) {
	create := operation{Ref: "vpp.interface/x", Verb: "create", Why: "desired", Outcome: "applied"}
	undo := operation{Ref: "vpp.interface/x", Verb: "delete", Why: "undo", Outcome: "applied"}
	refused := operation{
		Ref:     "linux.route/x",
		Verb:    "create",
		Why:     "desired",
		Err:     "route exists",
		Outcome: "not applied",
	}
	skipped := operation{Ref: "linux.route/y", Verb: "create", Why: "desired", Outcome: "skipped"}
	tests := []struct {
		name       string
		operations []operation
		want       string
	}{
		{"three applied and undone", []operation{create, create, create, refused, undo, undo, undo}, ""},
		{"one was not undone", []operation{create, create, create, refused, undo, undo}, "undid 2"},
		{"skipped operations do not count", []operation{create, create, skipped, refused, undo, undo}, "applied 2"},
		{"too few were applied", []operation{create, create, refused, undo, undo}, "applied 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := (&demo{out: io.Discard}).judgeUndone(record{Ops: tt.operations})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
