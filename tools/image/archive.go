package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the time of all files, so that the same programs have the same image.
var epoch = time.Unix(0, 0).UTC()

// imageOf returns an OCI image with one layer, which is a tar.
func imageOf(layer []byte, arch, tag string) (v1.Image, error) {
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil }
	l, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err = mutate.ConfigFile(base, &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: v1.Time{Time: epoch}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/" + binDir + "weft-agent"},
			Env:        []string{"PATH=/usr/local/bin"},
			Labels:     map[string]string{"org.opencontainers.image.title": "weft", "org.opencontainers.image.version": tag},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: epoch}}})
}

// archive returns a tar of an OCI layout with the image, and the digest of the image's manifest.
func (o options) archive(layer []byte) (raw []byte, digest string, err error) {
	tag := o.name[strings.LastIndexByte(o.name, ':')+1:]
	image, err := imageOf(layer, o.arch, tag)
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "weft-image")
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, "", err
	}
	names := map[string]string{"io.containerd.image.name": o.name, "org.opencontainers.image.ref.name": tag}
	err = path.AppendImage(image, layout.WithAnnotations(names), layout.WithPlatform(v1.Platform{Architecture: o.arch, OS: "linux"}))
	if err != nil {
		return nil, "", err
	}
	hash, err := image.Digest()
	if err != nil {
		return nil, "", err
	}
	raw, err = tarOf(os.DirFS(dir))
	return raw, hash.String(), err
}

// tarOf returns a tar of the files of a directory in lexical order.
func tarOf(dir fs.FS) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := fs.WalkDir(dir, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		return addFile(w, name, 0o644, content)
	})
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

func addFile(w *tar.Writer, name string, mode int64, content []byte) error {
	h := header(tar.TypeReg, name, mode)
	h.Size = int64(len(content))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// header returns a header without the time and the owner of the file.
func header(kind byte, name string, mode int64) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: mode, ModTime: epoch, Format: tar.FormatUSTAR}
}
