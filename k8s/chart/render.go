package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

// heading is the first line of what is rendered for people without Helm.
const heading = "# Rendered from the chart in k8s/chart/weft by `go run ./k8s/chart`. Do not edit it: edit the chart.\n"

// manifests are the plain manifests with the values that each changes.
var manifests = map[string]map[string]any{
	"weft.yaml":     {},
	"weft-vpp.yaml": {"config.dataplane": map[string]any{"type": "vpp"}},
}

// plain are the templates that make up the plain manifest. The rights are files there as they are.
var plain = []string{"config.yaml", "vswitch.yaml", "vpp.yaml", "agent.yaml", "controller.yaml"}

// chart is what templates see, as Helm names it.
type chart struct {
	Values map[string]any
	Chart  about
	Files  files
}

// about is the part of Chart.yaml that templates use.
type about struct {
	Name       string `json:"name"`
	AppVersion string `json:"appVersion"`
}

// files reads the chart's own files.
type files struct{ dir string }

// Get is the content of a file of the chart; it is empty if there is none, as with Helm.
func (f files) Get(name string) string {
	raw, err := os.ReadFile(filepath.Join(f.dir, filepath.FromSlash(name)))
	if err != nil {
		return ""
	}
	return string(raw)
}

// load reads a chart with its own values.
func load(dir string) (*chart, error) {
	c := &chart{Files: files{dir}}
	for name, into := range map[string]any{"Chart.yaml": &c.Chart, "values.yaml": &c.Values} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(raw, into); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
	}
	return c, nil
}

// set changes a value, named by its keys with dots between them.
func (c *chart) set(key string, value any) {
	keys, values := strings.Split(key, "."), c.Values
	for _, k := range keys[:len(keys)-1] {
		next, ok := values[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			values[k] = next
		}
		values = next
	}
	values[keys[len(keys)-1]] = value
}

// render executes one template as Helm does.
func (c *chart) render(name string) ([]byte, error) {
	path := filepath.Join(c.Files.dir, "templates", name)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := template.New(name).Funcs(functions).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out.Bytes(), nil
}

// functions are those of Helm's that the chart uses.
var functions = template.FuncMap{
	"toYaml":  toYAML,
	"nindent": func(n int, text string) string { return "\n" + indent(n, text) },
	"join":    join,
	"hasKey": func(values map[string]any, key string) bool {
		_, has := values[key]
		return has
	},
	"default": func(otherwise, value any) any {
		if value == nil || value == "" {
			return otherwise
		}
		return value
	},
}

func toYAML(v any) (string, error) {
	raw, err := yaml.Marshal(v)
	return strings.TrimSuffix(string(raw), "\n"), err
}

func indent(n int, text string) string {
	pad := strings.Repeat(" ", n)
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

func join(separator string, list any) (string, error) {
	items, ok := list.([]any)
	if !ok {
		return "", errors.New("join: no list")
	}
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = fmt.Sprint(item)
	}
	return strings.Join(words, separator), nil
}

// manifest renders a plain manifest with some values changed.
func manifest(dir string, changes map[string]any) ([]byte, error) {
	c, err := load(dir)
	if err != nil {
		return nil, err
	}
	for key, value := range changes {
		c.set(key, value)
	}
	var documents [][]byte
	for _, name := range plain {
		text, err := c.render(name)
		if err != nil {
			return nil, err
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			documents = append(documents, append(text, '\n'))
		}
	}
	return append([]byte(heading), bytes.Join(documents, []byte("---\n"))...), nil
}
