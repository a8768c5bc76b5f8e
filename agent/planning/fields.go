package planning

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// present is the value of the whole object, path "", where the object exists.
const present = "present"

// sides are the values of one object that are compared: desired, applied and machine.
const (
	desired = iota
	applied
	machine
	sides
)

// fieldsOf lists the fields in which the values of an object differ, by path. A nil value is an absent object. Fields
// are compared between the values that exist. If isUnread is set, machine is left out.
func fieldsOf(values [sides]any, isUnread bool) []*operatorv1.FieldDiff {
	compared := []int{desired, applied, machine}
	if isUnread {
		compared = compared[:machine]
	}
	var whole [sides]string
	var fields [sides]map[string]string
	var existing []int
	for _, side := range compared {
		if values[side] == nil {
			continue
		}
		whole[side] = present
		fields[side] = flat(values[side])
		existing = append(existing, side)
	}
	var out []*operatorv1.FieldDiff
	if 0 < len(existing) && len(existing) < len(compared) {
		out = append(out, fieldDiff("", whole))
	}
	paths := make(map[string]bool)
	for _, side := range existing {
		for path := range fields[side] {
			paths[path] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		var row [sides]string
		differs := false
		for _, side := range existing {
			row[side] = fields[side][path]
			differs = differs || row[side] != row[existing[0]]
		}
		if differs {
			out = append(out, fieldDiff(path, row))
		}
	}
	return out
}

func fieldDiff(path string, row [sides]string) *operatorv1.FieldDiff {
	return &operatorv1.FieldDiff{Path: path, Desired: row[desired], Applied: row[applied], Machine: row[machine]}
}

// flat returns the fields of a value as JSON, by path: the names of nested fields joined by dots, elements of lists by
// index. Fields with zero values of their types are included, as JSON has them.
func flat(value any) map[string]string {
	out := make(map[string]string)
	raw, err := json.Marshal(value)
	if err != nil {
		out["value"] = fmt.Sprintf("cannot be shown: %v", err)
		return out
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		out["value"] = fmt.Sprintf("cannot be shown: %v", err)
		return out
	}
	flatten(out, "", tree)
	return out
}

func flatten(out map[string]string, path string, tree any) {
	switch node := tree.(type) {
	case map[string]any:
		for name, field := range node {
			if path != "" {
				name = path + "." + name
			}
			flatten(out, name, field)
		}
	case []any:
		for i, element := range node {
			flatten(out, fmt.Sprintf("%s[%d]", path, i), element)
		}
	case nil: // as if it were absent
	default:
		text, _ := json.Marshal(node) // a value that was decoded from JSON
		if path == "" {
			path = "value"
		}
		out[path] = string(text)
	}
}
