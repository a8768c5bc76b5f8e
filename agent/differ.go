package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weftnet/weft/kvscheduler"
)

// describe tells an operator what of an object is not as it should be.
func describe(d kvscheduler.Difference) string {
	text := fmt.Sprintf("%s: %s", d.Ref, d.Reason)
	if fields := differing(d.Want, d.Have); fields != "" {
		text += " (" + fields + ")"
	}
	return text
}

// differing names the fields of two values that differ, with both sides: "mtu is 1300, not 1500". It is empty where
// there is nothing to compare.
func differing(want, have any) string {
	if want == nil || have == nil {
		return ""
	}
	w, err := fieldsOf(want)
	if err != nil {
		return ""
	}
	h, err := fieldsOf(have)
	if err != nil {
		return ""
	}
	keys := maps.Clone(w)
	maps.Copy(keys, h)
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if w[key] != h[key] {
			parts = append(parts, fmt.Sprintf("%s is %s, not %s", key, orMissing(h[key]), orMissing(w[key])))
		}
	}
	return strings.Join(parts, "; ")
}

// fieldsOf is the text of each field of a value, as it is shown elsewhere; a value without fields has one.
func fieldsOf(v any) (map[string]string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("show a value: %w", err)
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		fields = map[string]json.RawMessage{"it": raw}
	}
	texts := make(map[string]string, len(fields))
	for key, raw := range fields {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		texts[key] = text
	}
	return texts, nil
}

func orMissing(text string) string {
	if text == "" {
		return "missing"
	}
	return text
}
