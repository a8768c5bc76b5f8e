// Package documenttest validates JSON documents by their schemas, with a library that the product does not use.
package documenttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Validate validates each JSON value of an output by a schema, and returns their number.
func Validate(schema map[string]any, output []byte) (values int, err error) {
	raw, err := json.Marshal(schema)
	if err != nil {
		return 0, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw)) // with its own types of numbers
	if err != nil {
		return 0, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", document); err != nil {
		return 0, err
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		return 0, fmt.Errorf("schema: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(output)); ; values++ {
		d.UseNumber()
		var value any
		err := d.Decode(&value)
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err == nil {
			err = compiled.Validate(value)
		}
		if err != nil {
			return values, fmt.Errorf("value %d: %w", values+1, err)
		}
	}
}
