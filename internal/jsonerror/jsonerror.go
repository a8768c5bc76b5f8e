// Package jsonerror describes errors of encoding/json without the types of Go that they name.
package jsonerror

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Plain returns the error, or what a value of the wrong type should be: "ipam.mtu: expected an integer, not a string".
func Plain(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	reason := fmt.Sprintf("expected %s, not %s", expected(wrong.Type), given(wrong.Value))
	if wrong.Field != "" {
		reason = wrong.Field + ": " + reason
	}
	return errors.New(reason)
}

// expected names the JSON value of a type.
func expected(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string"
		}
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a positive integer"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	}
	return "another value"
}

// given names the value of an error of encoding/json: "number 1.5" and "bool" are such values.
func given(value string) string {
	switch value {
	case "bool":
		return "a boolean"
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "string":
		return "a string"
	case "number":
		return "a number"
	}
	return fmt.Sprintf("the %.80s", value)
}
