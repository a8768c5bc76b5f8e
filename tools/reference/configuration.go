package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// key is a key of the agent's configuration, as keys.go prints it.
type key struct {
	Path    string `json:"path"`
	Flag    string `json:"flag"`
	Type    string `json:"type"`
	Default string `json:"default"`
	Usage   string `json:"usage"`
}

// readKeys runs keys.go in the product's module, because this module does not import the product.
func readKeys(root string) (keys []key, err error) {
	cmd := exec.Command("go", "run", "tools/reference/keys.go")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("keys.go: %w", err)
	}
	if err := json.Unmarshal(out, &keys); err != nil {
		return nil, fmt.Errorf("keys.go: %w", err)
	}
	if len(keys) == 0 {
		return nil, errors.New("keys.go: there are no keys")
	}
	return keys, nil
}

func configuration(root string) (string, error) {
	keys, err := readKeys(root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(note + "# Configuration of the agent\n\n[configuration.md](../configuration.md) explains the keys; " +
		"[configuration.schema.json](configuration.schema.json) is their JSON Schema, for editors.\n\n" +
		"| key | flag | environment variable | type | default | meaning |\n|---|---|---|---|---|---|\n")
	for _, k := range keys {
		value := k.Default
		if value == "" || value == "[]" {
			value = "none"
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | `WEFT_%s` | %s | `%s` | %s |\n", k.Path, k.Flag,
			strings.ToUpper(strings.ReplaceAll(k.Flag, "-", "_")), k.Type, cell(value),
			cell(k.Usage))
	}
	return b.String(), nil
}

func schemaOfConfiguration(root string) (string, error) {
	keys, err := readKeys(root)
	if err != nil {
		return "", err
	}
	schema := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Configuration of weft-agent",
		"type": "object", "additionalProperties": false, "properties": map[string]any{},
	}
	for _, k := range keys {
		at := schema
		path := strings.Split(k.Path, ".")
		for _, group := range path[:len(path)-1] {
			properties, _ := at["properties"].(map[string]any)
			below, exists := properties[group].(map[string]any)
			if !exists {
				below = map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
				properties[group] = below
			}
			at = below
		}
		value := map[string]any{"description": k.Usage}
		switch k.Type {
		case "bool":
			value["type"] = "boolean"
		case "int", "uint16", "uint32":
			value["type"] = "integer"
		case "float64":
			value["type"] = "number"
		case "string", "duration":
			value["type"] = "string"
		}
		if kind := value["type"]; kind == "string" && k.Default != "" {
			value["default"] = k.Default
		} else if kind != nil && kind != "string" {
			var decoded any
			if err := json.Unmarshal([]byte(k.Default), &decoded); err == nil {
				value["default"] = decoded
			}
		}
		properties, _ := at["properties"].(map[string]any)
		properties[path[len(path)-1]] = value
	}
	text, err := json.MarshalIndent(schema, "", "  ")
	return string(text) + "\n", err
}
