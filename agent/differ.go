package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

// describe tells an operator what of an object is not as it should be.
func describe(d kvscheduler.Difference) string {
	text := fmt.Sprintf("%s: %s", d.Ref, d.Reason)
	if fields := differing(d.Want, d.Have); fields != "" {
		text += " (" + fields + ")"
	}
	return text
}

// differencesOf makes of a difference what CHECK judges: later plugins of a chain may change some fields of the links in
// a sandbox, so of these each field stands alone. Any other object is one difference.
func differencesOf(d kvscheduler.Difference) []podmanager.Difference {
	link := linkOf(d.Want)
	w, errW := fieldsOf(d.Want)
	h, errH := fieldsOf(d.Have)
	if link == "" || d.Have == nil || errW != nil || errH != nil {
		return []podmanager.Difference{{Text: describe(d), Interface: link}}
	}
	var differences []podmanager.Difference
	for _, key := range unequal(w, h) {
		differences = append(differences, podmanager.Difference{
			Text:      fmt.Sprintf("%s: %s (%s)", d.Ref, d.Reason, sides(key, w, h)),
			Interface: link, Field: key, Have: h[key],
		})
	}
	if len(differences) == 0 {
		return []podmanager.Difference{{Text: describe(d), Interface: link}}
	}
	return differences
}

// linkOf is the name of the link in the pod that a value makes; "" if it makes none.
func linkOf(value any) string {
	switch v := value.(type) {
	case wire.TapPeer:
		return v.Name
	case wire.Veth:
		return v.Name
	}
	return ""
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
	var parts []string
	for _, key := range unequal(w, h) {
		parts = append(parts, sides(key, w, h))
	}
	return strings.Join(parts, "; ")
}

// unequal names the fields that two values do not share.
func unequal(w, h map[string]string) []string {
	all := maps.Clone(w)
	maps.Copy(all, h)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(key string) bool { return w[key] == h[key] })
}

func sides(key string, w, h map[string]string) string {
	return fmt.Sprintf("%s is %s, not %s", key, orMissing(h[key]), orMissing(w[key]))
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
