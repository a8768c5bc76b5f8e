// Package chart renders the Helm chart of Weft with Helm's engine.
package chart

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	helm "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1/util"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

//go:embed all:weft
var embedded embed.FS

// repository is the name of the image without its tag. The linker sets it; "" keeps the name in values.yaml.
var repository string

// Chart is the chart of this build.
type Chart struct{ chart *helm.Chart }

// Load returns the chart. A version, such as v1.2.3, is the default tag of the image; "" keeps the version in
// Chart.yaml.
func Load(version string) (*Chart, error) {
	var files []*archive.BufferedFile
	err := fs.WalkDir(embedded, "weft", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := embedded.ReadFile(name)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(name, "weft/"), Data: content})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	if version != "" {
		c.Metadata.AppVersion = version
		c.Metadata.Version = strings.TrimPrefix(version, "v")
	}
	if image, is := c.Values["image"].(map[string]any); is && repository != "" {
		image["name"] = repository
	}
	return &Chart{c}, nil
}

// Values merges values like helm: documents of YAML first, then assignments such as vpp.enabled=false. Later ones take
// precedence.
func Values(documents [][]byte, assignments []string) (map[string]any, error) {
	values := map[string]any{}
	for _, document := range documents {
		var next map[string]any
		if err := yaml.Unmarshal(document, &next); err != nil {
			return nil, fmt.Errorf("read values: %w", err)
		}
		values = util.MergeTables(next, values)
	}
	for _, assignment := range assignments {
		if err := strvals.ParseInto(assignment, values); err != nil {
			return nil, fmt.Errorf("read the value %q: %w", assignment, err)
		}
	}
	return values, nil
}

// Render renders the chart for a namespace with changes of its default values. It returns the texts of the templates by
// the names of their files. Values that the schema does not have are an error.
func (c *Chart) Render(namespace string, values map[string]any) (map[string]string, error) {
	options := common.ReleaseOptions{Name: c.chart.Metadata.Name, Namespace: namespace, Revision: 1, IsInstall: true}
	merged, err := util.ToRenderValues(c.chart, values, options, nil)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Engine{Strict: true}.Render(c.chart, merged)
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w", err)
	}
	files := map[string]string{}
	for name, text := range texts {
		if base := path.Base(name); !strings.HasPrefix(base, "_") {
			files[base] = text
		}
	}
	return files, nil
}

// Settings are the values that decide what the nodes must have.
type Settings struct {
	CNI    struct{ Mode string }
	Config struct {
		Pools      any
		Dataplane  struct{ Type string }
		Kubernetes struct{ Addresses string }
	}
	VPP struct {
		Enabled   bool
		Hugepages struct{ Size, Amount string }
	}
}

// Settings returns the values after the changes.
func (c *Chart) Settings(values map[string]any) (s Settings, err error) {
	merged, err := util.CoalesceValues(c.chart, values)
	if err != nil {
		return s, fmt.Errorf("merge values: %w", err)
	}
	raw, err := yaml.Marshal(merged)
	if err != nil {
		return s, fmt.Errorf("merge values: %w", err)
	}
	return s, yaml.Unmarshal(raw, &s)
}

// notes is the template with the text for the operator; it is not an object.
const notes = "NOTES.txt"

// Manifest renders the chart and returns all objects in the order of their creation, and the text for the operator.
func (c *Chart) Manifest(namespace string, values map[string]any) (objects, text string, err error) {
	files, err := c.Render(namespace, values)
	if err != nil {
		return "", "", err
	}
	text = files[notes]
	maps.DeleteFunc(files, func(name, _ string) bool { return name == notes })
	_, sorted, err := release.SortManifests(files, nil, release.InstallOrder)
	if err != nil {
		return "", "", fmt.Errorf("sort the objects: %w", err)
	}
	var all strings.Builder
	for _, m := range sorted {
		fmt.Fprintf(&all, "---\n%s\n", strings.TrimSpace(m.Content))
	}
	return all.String(), text, nil
}
