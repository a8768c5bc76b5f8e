package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryDescriptorRefersToABlobOfTheArchive(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("content"), 0o755); err != nil {
		t.Fatal(err)
	}
	i := Image{
		Name: "localhost/some:tag", Entrypoint: []string{"/opt/program"},
		Files: map[string]string{"/opt/program": program}, Links: map[string]string{"/opt/other": "program"},
	}
	archive := filepath.Join(dir, "image.tar")
	if err := i.Archive(archive); err != nil {
		t.Fatal(err)
	}
	files := untar(t, archive)

	var index struct{ Manifests []descriptor }
	decode(t, files["index.json"], &index)
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != i.Name {
		t.Errorf("the image's name for containerd is %q", got)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	decode(t, blob(t, files, index.Manifests[0]), &manifest)
	blob(t, files, manifest.Config)
	layer := filepath.Join(dir, "layer.tar")
	if err := os.WriteFile(layer, blob(t, files, manifest.Layers[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	inside := untar(t, layer)
	if string(inside["opt/program"]) != "content" {
		t.Errorf("the layer holds %v", slices.Sorted(maps.Keys(inside)))
	}
	for _, dir := range mountpoints {
		if _, ok := inside[strings.TrimPrefix(dir, "/")+"/"]; !ok {
			t.Errorf("the layer lacks %s", dir)
		}
	}
}

func TestErrorOfAMissingFileNamesTheImage(t *testing.T) {
	i := Image{Name: "localhost/some:tag", Files: map[string]string{"/a": filepath.Join(t.TempDir(), "nowhere")}}
	err := i.Archive(filepath.Join(t.TempDir(), "image.tar"))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), i.Name) {
		t.Errorf("got %v", err)
	}
}

func blob(t *testing.T, files map[string][]byte, d descriptor) []byte {
	t.Helper()
	content, ok := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if !ok || len(content) != d.Size || digest(content) != d.Digest {
		t.Fatalf("no such blob: %+v", d)
	}
	return content
}

func decode(t *testing.T, from []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(from, into); err != nil {
		t.Fatalf("%v in %s", err, from)
	}
}

func untar(t *testing.T, path string) map[string][]byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
