// Package oci makes container images of Weft, and archives of OCI layouts, without a daemon. The same content has the
// same bytes.
package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
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

// Image returns an OCI image with one layer, which is a tar.
func Image(layer []byte, arch, tag string) (v1.Image, error) {
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil }
	l, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err = mutate.ConfigFile(base, &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: v1.Time{Time: epoch}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/" + binDir + "weft-agent"},
			Env:        []string{"PATH=/usr/local/bin"},
			Labels: map[string]string{
				"org.opencontainers.image.title":   "weft",
				"org.opencontainers.image.version": tag,
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: epoch}}})
}

// Index returns an OCI index of images by their architectures.
func Index(images map[string]v1.Image) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(images)) {
		platform := v1.Descriptor{Platform: &v1.Platform{Architecture: arch, OS: "linux"}}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: images[arch], Descriptor: platform})
	}
	return index
}

// Named returns the options for an image or index in a layout, by which container runtimes name it.
func Named(name string) layout.Option {
	tag := name[strings.LastIndexByte(name, ':')+1:]
	return layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          name,
		"org.opencontainers.image.ref.name": tag,
	})
}

// Archive returns a tar of the OCI layout that fill makes.
func Archive(fill func(layout.Path) error) ([]byte, error) {
	dir, err := os.MkdirTemp("", "weft-image")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	if err := fill(path); err != nil {
		return nil, err
	}
	return Tar(os.DirFS(dir))
}

// Tar returns a tar of the files of a directory in lexical order.
func Tar(dir fs.FS) ([]byte, error) {
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
		return AddFile(w, name, 0o644, content)
	})
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// AddFile adds a file of root.
func AddFile(w *tar.Writer, name string, mode int64, content []byte) error {
	h := header(tar.TypeReg, name, mode)
	h.Size = int64(len(content))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// AddLink adds a symbolic link.
func AddLink(w *tar.Writer, name, target string) error {
	h := header(tar.TypeSymlink, name, 0o777)
	h.Linkname = target
	return w.WriteHeader(h)
}

// header returns a header without the time and the owner of the file.
func header(kind byte, name string, mode int64) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: mode, ModTime: epoch, Format: tar.FormatUSTAR}
}
