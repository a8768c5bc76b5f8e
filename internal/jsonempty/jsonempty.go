// Package jsonempty decides which JSON values equal a missing key.
package jsonempty

import "encoding/json"

// Is reports whether the value of an optional key is empty, which is the same as no key: null, "", [] or {}, or no
// text. Templates leave such values behind.
func Is(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return true
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
