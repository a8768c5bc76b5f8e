package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/tools/oci"
)

// Media types of charts in registries (helm.sh/docs/topics/registries).
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chart is a packed Helm chart.
type chart struct {
	version string         // without the letter v, as Helm requires it
	about   map[string]any // the content of Chart.yaml
	archive []byte         // for helm install
}

// packChart packs the chart of a directory with the version, for the image of the repository with that tag.
func packChart(dir, version, repository string) (chart, error) {
	c := chart{version: strings.TrimPrefix(version, "v")}
	raw, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return c, err
	}
	if err := yaml.UnmarshalStrict(raw, &c.about); err != nil {
		return c, fmt.Errorf("file Chart.yaml: %w", err)
	}
	c.about["version"] = c.version
	c.about["appVersion"] = version
	c.archive, err = compressed(func(w *tar.Writer) error { return c.addFiles(w, dir, repository) })
	return c, err
}

func (c chart) addFiles(w *tar.Writer, dir, repository string) error {
	about, err := yaml.Marshal(c.about)
	if err != nil {
		return err
	}
	// Helm reads Chart.yaml first.
	if err := oci.AddFile(w, "weft/Chart.yaml", 0o644, about); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || path == filepath.Join(dir, "Chart.yaml") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if name == "values.yaml" {
			if content, err = withRepository(content, repository); err != nil {
				return err
			}
		}
		return oci.AddFile(w, "weft/"+filepath.ToSlash(name), 0o644, content)
	})
}

// imageName is the line of values.yaml with the name of the image.
const imageName = "\nimage:\n  name: localhost/weft\n"

// withRepository replaces the name of the image, and keeps the comments.
func withRepository(values []byte, repository string) ([]byte, error) {
	if bytes.Count(values, []byte(imageName)) != 1 {
		return nil, fmt.Errorf("values.yaml does not have the line %q", strings.TrimSpace(imageName))
	}
	return bytes.Replace(values, []byte(imageName), []byte("\nimage:\n  name: "+repository+"\n"), 1), nil
}

// artefact returns an archive of an OCI layout with the chart, as helm push stores it in a registry.
func (c chart) artefact(tag string) ([]byte, error) {
	about, err := json.Marshal(c.about)
	if err != nil {
		return nil, err
	}
	return oci.Archive(func(path layout.Path) error {
		manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
		if manifest.Config, err = blob(path, chartConfig, about); err != nil {
			return err
		}
		content, err := blob(path, chartContent, c.archive)
		if err != nil {
			return err
		}
		manifest.Layers = []v1.Descriptor{content}
		raw, err := json.Marshal(manifest)
		if err != nil {
			return err
		}
		top, err := blob(path, types.OCIManifestSchema1, raw)
		if err != nil {
			return err
		}
		top.Annotations = map[string]string{"org.opencontainers.image.ref.name": strings.TrimPrefix(tag, "v")}
		return path.AppendDescriptor(top)
	})
}

// blob adds content to a layout.
func blob(path layout.Path, kind types.MediaType, content []byte) (v1.Descriptor, error) {
	hash, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: kind, Size: size, Digest: hash}, path.WriteBlob(hash,
		io.NopCloser(bytes.NewReader(content)))
}
