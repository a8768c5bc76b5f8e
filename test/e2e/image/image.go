// Package image builds OCI images, so that a cluster runs without a registry.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Image is the content of an image with one layer.
type Image struct {
	// Name is the image's name with a tag: localhost/weft:e2e.
	Name string
	// Files are the files of the image: path in the image -> path here. They keep their permissions.
	Files map[string]string
	// Links are symbolic links: path in the image -> target.
	Links map[string]string
	// Entrypoint is the program with its first arguments.
	Entrypoint []string
}

// Media types of the OCI image specification.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// searchPath is PATH in the containers.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// descriptor refers to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

func describe(mediaType string, blob []byte) descriptor {
	return descriptor{MediaType: mediaType, Digest: digest(blob), Size: len(blob)}
}

func digest(blob []byte) string {
	sum := sha256.Sum256(blob)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Archive writes the image to the file at path as a tar of an OCI layout, which `ctr images import` reads.
func (i Image) Archive(path string) error {
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	blobs, err := i.blobs(layer)
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	var archive bytes.Buffer
	if err := writeLayout(tar.NewWriter(&archive), blobs); err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	if err := os.WriteFile(path, archive.Bytes(), 0o644); err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	return nil
}

// layout is an OCI layout under construction: the index, and its blobs.
type layout struct {
	index []byte
	blobs [][]byte
}

func (i Image) blobs(layer []byte) (layout, error) {
	here := platform{Architecture: runtime.GOARCH, OS: "linux"}
	config, err := json.Marshal(map[string]any{
		"architecture": here.Architecture, "os": here.OS,
		"config": map[string]any{"Entrypoint": i.Entrypoint, "Env": []string{searchPath}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return layout{}, fmt.Errorf("write the configuration: %w", err)
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": describe(configType, config), "layers": []descriptor{describe(layerType, layer)},
	})
	if err != nil {
		return layout{}, fmt.Errorf("write the manifest: %w", err)
	}
	entry := describe(manifestType, manifest)
	entry.Platform = &here
	entry.Annotations = map[string]string{
		"io.containerd.image.name":          i.Name,
		"org.opencontainers.image.ref.name": i.Name[strings.LastIndexByte(i.Name, ':')+1:],
	}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2,
		"mediaType":     indexType,
		"manifests":     []descriptor{entry},
	})
	if err != nil {
		return layout{}, fmt.Errorf("write the index: %w", err)
	}
	return layout{index: index, blobs: [][]byte{config, manifest, layer}}, nil
}

func writeLayout(w *tar.Writer, l layout) error {
	if err := writeFile(w, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := writeFile(w, "index.json", l.index); err != nil {
		return err
	}
	for _, blob := range l.blobs {
		if err := writeFile(w, "blobs/sha256/"+strings.TrimPrefix(digest(blob), "sha256:"), blob); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeFile(w *tar.Writer, name string, content []byte) error {
	if err := w.WriteHeader(&tar.Header{
		Name:     name,
		Typeflag: tar.TypeReg,
		Mode:     0o644,
		Size:     int64(len(content)),
	}); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
