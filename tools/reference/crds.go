package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// definition is a CustomResourceDefinition as far as the page shows it. The versions are decoded from JSON, as the API
// server does.
type definition struct {
	Spec struct {
		Names struct {
			Kind       string   `json:"kind"`
			Plural     string   `json:"plural"`
			ShortNames []string `json:"shortNames"`
		} `json:"names"`
		Scope    string `json:"scope"`
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				OpenAPIV3Schema property `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// property is a JSON schema.
type property struct {
	Type                 string              `json:"type"`
	Description          string              `json:"description"`
	Default              any                 `json:"default"`
	Enum                 []any               `json:"enum"`
	Minimum              *float64            `json:"minimum"`
	Maximum              *float64            `json:"maximum"`
	MaxItems             *int                `json:"maxItems"`
	Required             []string            `json:"required"`
	Properties           map[string]property `json:"properties"`
	Items                *property           `json:"items"`
	AdditionalProperties *property           `json:"additionalProperties"`
	Validations          []struct {
		Message string `json:"message"`
	} `json:"x-kubernetes-validations"`
}

func customResources(root string) (string, error) {
	files, err := filepath.Glob(filepath.Join(root, "k8s/manifests/crds/*.yaml"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", errors.New("k8s/manifests/crds has no definitions")
	}
	var b strings.Builder
	b.WriteString(note + "# Custom resources\n\nGroup `contivpp.io`. `kubectl explain` prints the same descriptions.\n")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		var d definition
		if err := yaml.Unmarshal(content, &d); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		for _, v := range d.Spec.Versions {
			schema := v.Schema.OpenAPIV3Schema
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n`%s.contivpp.io/%s`, scope %s", d.Spec.Names.Kind,
				cell(schema.Description), d.Spec.Names.Plural, v.Name, d.Spec.Scope)
			if len(d.Spec.Names.ShortNames) > 0 {
				fmt.Fprintf(&b, ", short name `%s`", strings.Join(d.Spec.Names.ShortNames, "`, `"))
			}
			b.WriteString(".\n\n| field | type | meaning |\n|---|---|---|\n")
			writeFields(&b, "", schema)
			if rules := messages(schema); len(rules) > 0 {
				fmt.Fprintf(&b, "\nAlso refused, with the text of the API server's error:\n\n")
				for _, rule := range rules {
					fmt.Fprintf(&b, "- %s\n", cell(rule))
				}
			}
		}
	}
	return b.String(), nil
}

func writeFields(b *strings.Builder, path string, p property) {
	for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
		field := p.Properties[name]
		if path == "" && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue
		}
		kind := field.Type
		below := field
		switch {
		case field.Items != nil:
			kind = "list of " + cmp.Or(field.Items.Type, "any")
			below = *field.Items
		case field.AdditionalProperties != nil:
			kind = "map of " + cmp.Or(field.AdditionalProperties.Type, "any")
			below = *field.AdditionalProperties
		}
		meaning := cell(field.Description)
		if slices.Contains(p.Required, name) {
			meaning += " Required."
		}
		if field.Default != nil {
			text, _ := json.Marshal(field.Default)
			meaning += fmt.Sprintf(" Default: `%s`.", text)
		}
		if len(field.Enum) > 0 {
			meaning += fmt.Sprintf(" One of %v.", field.Enum)
		}
		if field.Minimum != nil && field.Maximum != nil {
			meaning += fmt.Sprintf(" %.0f to %.0f.", *field.Minimum, *field.Maximum)
		}
		if field.MaxItems != nil {
			meaning += fmt.Sprintf(" At most %d.", *field.MaxItems)
		}
		suffix := ""
		if field.Items != nil {
			suffix = "[]"
		}
		fmt.Fprintf(b, "| `%s%s%s` | %s | %s |\n", path, name, suffix, cmp.Or(kind, "any"), meaning)
		writeFields(b, path+name+suffix+".", below)
	}
}

// messages returns the messages of the validation rules of a schema.
func messages(p property) (all []string) {
	for _, v := range p.Validations {
		if v.Message != "" {
			all = append(all, v.Message)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
		all = append(all, messages(p.Properties[name])...)
	}
	if p.Items != nil {
		all = append(all, messages(*p.Items)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
