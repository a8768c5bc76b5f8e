package weft_test

import (
	"encoding/json"
	"fmt"
	"testing"
)

// The chart's default configuration conforms to the schema, and a typing error does not.
func TestSchemaKnowsTheConfigurationOfTheChart(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal([]byte(read(t, "docs/reference/configuration.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	defaults, _ := values()["config"].(map[string]any)
	if len(defaults) < 3 {
		t.Fatalf("the chart's config is %v", defaults)
	}
	if err := conforms("config", schema, defaults); err != nil {
		t.Error(err)
	}
	for _, wrong := range []map[string]any{
		{"dataplane": map[string]any{"tipe": "vpp"}}, {"mtu": "big"}, {"ipMasq": 1.0}, {"kubernetes": "cluster"}, {
			"zzz": 1.0,
		},
	} {
		if err := conforms("config", schema, wrong); err == nil {
			t.Errorf("%v conforms", wrong)
		}
	}
}

// conforms checks the parts of a JSON Schema that tools/reference writes.
func conforms(path string, schema map[string]any, value any) error {
	object, isObject := value.(map[string]any)
	_, isText := value.(string)
	_, isNumber := value.(float64)
	_, isBool := value.(bool)
	is := map[any]bool{
		"object":  isObject,
		"string":  isText,
		"integer": isNumber,
		"number":  isNumber,
		"boolean": isBool,
		nil:       true,
	}
	if !is[schema["type"]] {
		return fmt.Errorf("%s is %v, want %v", path, value, schema["type"])
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, below := range object {
		property, known := properties[name].(map[string]any)
		if !known && schema["additionalProperties"] == false {
			return fmt.Errorf("%s.%s is unknown", path, name)
		}
		if err := conforms(path+"."+name, property, below); err != nil {
			return err
		}
	}
	return nil
}
