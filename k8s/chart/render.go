package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	sprig "github.com/go-task/slim-sprig/v3"
	"sigs.k8s.io/yaml"
)

// heading is the first line of the manifests.
const heading = "# Rendered from the chart in k8s/chart/weft by `go run ./k8s/chart`. Do not edit it: edit the chart.\n"

// manifests are the rendered files, with the values that each changes.
var manifests = map[string]map[string]any{
	"weft.yaml":     {},
	"weft-vpp.yaml": {"config.dataplane": map[string]any{"type": "vpp"}},
}

// plain are the templates of the manifests. The rights are separate files in k8s/manifests.
var plain = []string{"config.yaml", "vswitch.yaml", "vpp.yaml", "agent.yaml", "controller.yaml"}

// chart is the data of templates, with Helm's names.
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

// files are the files of a chart.
type files struct{ dir string }

// Get returns the content of a file. Like Helm's it returns "" for a missing file.
func (f files) Get(name string) string {
	raw, _ := os.ReadFile(filepath.Join(f.dir, filepath.FromSlash(name)))
	return string(raw)
}

// load reads a chart with its default values.
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

// set changes a value. The key has dots between its parts, like that of helm --set.
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

// render executes one template with the functions of Helm. A missing value is an error.
func (c *chart) render(name string) ([]byte, error) {
	t := template.New(name).Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{"toYaml": toYAML}).Option("missingkey=error")
	path := filepath.Join(c.Files.dir, "templates", name)
	if _, err := t.ParseFiles(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out.Bytes(), nil
}

func toYAML(v any) (string, error) {
	raw, err := yaml.Marshal(v)
	return strings.TrimSuffix(string(raw), "\n"), err
}

// manifest renders the plain templates with changed values.
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
