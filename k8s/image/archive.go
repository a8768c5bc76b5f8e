package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// image is what goes into the archive.
type image struct {
	name, arch string
	layer      []byte // a tar
}

// Media types of the OCI image specification 1.1.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor points to a blob.
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

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type config struct {
	platform
	Created string  `json:"created"`
	Config  process `json:"config"`
	RootFS  rootFS  `json:"rootfs"`
}

type process struct {
	Entrypoint []string          `json:"Entrypoint"`
	Env        []string          `json:"Env"`
	Labels     map[string]string `json:"Labels"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// archive is the image as a tar of an OCI layout, and the digest of its manifest.
func (i image) archive() (raw []byte, manifestDigest string, err error) {
	layer, err := compress(i.layer)
	if err != nil {
		return nil, "", err
	}
	configuration, err := json.Marshal(i.config())
	if err != nil {
		return nil, "", err
	}
	described, err := json.Marshal(manifest{
		SchemaVersion: 2, MediaType: manifestType,
		Config: describe(configType, configuration), Layers: []descriptor{describe(layerType, layer)},
	})
	if err != nil {
		return nil, "", err
	}
	entry := describe(manifestType, described)
	entry.Platform = &platform{Architecture: i.arch, OS: "linux"}
	entry.Annotations = map[string]string{
		"io.containerd.image.name":          i.name,
		"org.opencontainers.image.ref.name": i.tag(),
	}
	top, err := json.Marshal(index{SchemaVersion: 2, MediaType: indexType, Manifests: []descriptor{entry}})
	if err != nil {
		return nil, "", err
	}
	raw, err = layout(top, configuration, described, layer)
	return raw, entry.Digest, err
}

func (i image) config() config {
	return config{
		platform: platform{Architecture: i.arch, OS: "linux"},
		Created:  "1970-01-01T00:00:00Z",
		Config: process{
			Entrypoint: []string{"/" + where + "weft-agent"},
			Env:        []string{"PATH=/usr/local/bin"},
			Labels:     map[string]string{"org.opencontainers.image.title": "weft", "org.opencontainers.image.version": i.tag()},
		},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{digest(i.layer)}},
	}
}

func (i image) tag() string { return i.name[strings.LastIndexByte(i.name, ':')+1:] }

func describe(mediaType string, blob []byte) descriptor {
	return descriptor{MediaType: mediaType, Digest: digest(blob), Size: len(blob)}
}

func digest(blob []byte) string {
	sum := sha256.Sum256(blob)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func compress(layer []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out) // its header holds neither name nor time
	if _, err := w.Write(layer); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func layout(top []byte, blobs ...[]byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	files := []struct {
		name    string
		content []byte
	}{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", top}}
	for _, blob := range blobs {
		files = append(files, struct {
			name    string
			content []byte
		}{"blobs/sha256/" + strings.TrimPrefix(digest(blob), "sha256:"), blob})
	}
	for _, f := range files {
		h := header(tar.TypeReg, f.name, 0o644)
		h.Size = int64(len(f.content))
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
