package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// jsonPathFormat begins the output format jsonpath=TEMPLATE, which has the syntax of kubectl.
const jsonPathFormat = "jsonpath="

// jsonPath parses a format jsonpath=TEMPLATE. Like kubectl it permits a path without braces and without the dot at its
// beginning.
func jsonPath(format string) (*jsonpath.JSONPath, error) {
	template := strings.TrimPrefix(format, jsonPathFormat)
	if template == "" {
		return nil, usageError{fmt.Errorf("--output %s: no path; -o json prints all keys", format)}
	}
	if !strings.Contains(template, "{") {
		template = "{." + strings.TrimPrefix(template, ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, usageError{fmt.Errorf("--output %s: %w", format, err)}
	}
	return path, nil
}

// selected prints the part of a document that the template of --output selects.
func (p *printer) selected(v any) error {
	path, err := jsonPath(p.format)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	var document any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // counters of 64 bits
	if err := decoder.Decode(&document); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	var out bytes.Buffer
	if err := path.Execute(&out, numbered(document)); err != nil {
		return fmt.Errorf("--output %s: %w; -o json prints all keys", p.format, err)
	}
	p.printf("%s\n", strings.TrimSuffix(printable(out.String()), "\n"))
	return nil
}

// numbered returns a document with numbers that can be compared; whole numbers are integers.
func numbered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = numbered(v[key])
		}
	case []any:
		for i := range v {
			v[i] = numbered(v[i])
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if n, err := v.Float64(); err == nil {
			return n
		}
	}
	return v
}
