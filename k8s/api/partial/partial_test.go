package partial_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weftnet/weft/k8s/api/partial"
)

// A user writes an object with as many unreadable parts as the API server stores, and with long names. Each agent keeps
// the reasons.
func TestReasonsOfUnreadablePartsAreBounded(t *testing.T) {
	for what, raw := range map[string]string{
		"many":             "[" + strings.Repeat(`{"a": 1},`, 110_000) + "{}]",
		"a long name":      `[{"` + strings.Repeat("ä", 500_000) + `": 1}]`,
		"many names":       `[{"a": 1` + strings.Repeat(`, "b": 2`, 110_000) + "}]",
		"many long names":  "[" + strings.Repeat(`{"`+strings.Repeat("x", 500)+`": 1},`, 1000) + "{}]",
		"not a list":       `{"a": 1}`,
		"the last of many": "[" + strings.Repeat("{},", 110_000) + `{"a": 1}]`,
	} {
		var r partial.Reader
		partial.Each(&r, "ingress", json.RawMessage(raw), func(json.RawMessage) struct{} { return struct{}{} })
		text := 0
		for _, reason := range r.Unreadable {
			text += len(reason)
		}
		if len(r.Unreadable) == 0 || len(r.Unreadable) > 17 || text > 5000 {
			t.Errorf("%s: %d reasons of %d bytes", what, len(r.Unreadable), text)
		}
		if !strings.HasPrefix(r.Unreadable[0], "ingress") {
			t.Errorf("%s: the first reason is %q", what, r.Unreadable[0])
		}
	}
}
