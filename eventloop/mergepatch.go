package eventloop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// mergePatch returns doc with the merge patch of RFC 7396 applied. An empty doc
// counts as none. Numbers keep their digits.
func mergePatch(doc, patch []byte) ([]byte, error) {
	var target any
	if len(doc) > 0 {
		var err error
		if target, err = decodeJSON(doc); err != nil {
			return nil, fmt.Errorf("decode document: %w", err)
		}
	}
	p, err := decodeJSON(patch)
	if err != nil {
		return nil, fmt.Errorf("decode patch: %w", err)
	}
	return json.Marshal(merge(target, p))
}

// merge is MergePatch of RFC 7396 section 2.
func merge(target, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged, ok := target.(map[string]any)
	if !ok {
		merged = make(map[string]any, len(fields))
	}
	for name, value := range fields {
		if value == nil {
			delete(merged, name)
			continue
		}
		merged[name] = merge(merged[name], value)
	}
	return merged
}

// decodeJSON decodes exactly one value.
func decodeJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}
