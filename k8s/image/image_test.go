package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program is the smallest that Go makes.
const program = "package main\n\nfunc main() {}\n"

// builds compiles the four programs, which are all the same, for an architecture.
func builds(t *testing.T, arch string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, names[0]), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, name := range names[1:] {
		if err := os.Link(filepath.Join(dir, names[0]), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packed runs the command and returns the archive.
func packed(t *testing.T, from, arch string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-from", from, "-arch", arch, "-name", "localhost/weft:v1.2.3", "-o", out}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

type entry struct {
	tar.Header
	content []byte
}

func untar(t *testing.T, raw []byte) map[string]entry {
	t.Helper()
	entries := map[string]entry{}
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := entries[h.Name]; twice {
			t.Errorf("%s is there twice", h.Name)
		}
		entries[h.Name] = entry{*h, content}
	}
}

// blob finds what a descriptor points to, and checks that it is that.
func blob(t *testing.T, files map[string]entry, d descriptor) []byte {
	t.Helper()
	content := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")].content
	if digest(content) != d.Digest || len(content) != d.Size {
		t.Fatalf("%s of %d bytes leads to %s of %d bytes", d.Digest, d.Size, digest(content), len(content))
	}
	return content
}

func decode(t *testing.T, raw []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// rows: AWS-01
func TestIndexManifestConfigAndLayerFitTogether(t *testing.T) {
	for arch := range machines {
		t.Run(arch, func(t *testing.T) {
			from := builds(t, arch)
			files := untar(t, packed(t, from, arch))
			var top index
			decode(t, files["index.json"].content, &top)
			if len(top.Manifests) != 1 || top.Manifests[0].Annotations["io.containerd.image.name"] != "localhost/weft:v1.2.3" ||
				*top.Manifests[0].Platform != (platform{arch, "linux"}) {
				t.Errorf("index %+v", top)
			}
			var m manifest
			decode(t, blob(t, files, top.Manifests[0]), &m)
			var c config
			decode(t, blob(t, files, m.Config), &c)
			layer := gunzip(t, blob(t, files, m.Layers[0]))
			if len(m.Layers) != 1 || len(c.RootFS.DiffIDs) != 1 || c.RootFS.DiffIDs[0] != digest(layer) || c.platform != (platform{arch, "linux"}) {
				t.Errorf("manifest %+v, config %+v", m, c)
			}
			if len(files) != 5 {
				t.Errorf("%d files in the archive: index, layout and three blobs are wanted", len(files))
			}
			inspectLayer(t, untar(t, layer), from)
		})
	}
}

// inspectLayer checks what a container will find.
func inspectLayer(t *testing.T, inside map[string]entry, from string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(from, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if f := inside["usr/local/bin/"+name]; f.Mode != 0o755 || f.Uid != 0 || !bytes.Equal(f.content, content) {
			t.Errorf("%s: mode %o, owner %d, %d bytes", name, f.Mode, f.Uid, len(f.content))
		}
	}
	for path, target := range map[string]string{"usr/local/bin/weft-ipam": "weft-cni", "var/run": "../run"} {
		if inside[path].Linkname != target {
			t.Errorf("%s leads to %q", path, inside[path].Linkname)
		}
	}
	for path, f := range inside {
		parent := filepath.Dir(strings.TrimSuffix(path, "/")) + "/"
		if _, ok := inside[parent]; parent != "./" && !ok {
			t.Errorf("%s has no directory", path)
		}
		if f.ModTime.Unix() != 0 {
			t.Errorf("%s is of %v", path, f.ModTime)
		}
	}
}

func gunzip(t *testing.T, raw []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestTheSameProgramsMakeTheSameBytes(t *testing.T) {
	first, second := builds(t, "amd64"), builds(t, "amd64")
	if err := os.Chmod(filepath.Join(second, names[0]), 0o700); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(packed(t, first, "amd64"), packed(t, second, "amd64")) {
		t.Error("the archives differ")
	}
}

func TestWhatWouldNotRunIsNotPacked(t *testing.T) {
	here := builds(t, "amd64")
	missing := builds(t, "amd64")
	if err := os.Remove(filepath.Join(missing, "weft-vswitch")); err != nil {
		t.Fatal(err)
	}
	text := builds(t, "amd64")
	if err := os.Remove(filepath.Join(text, "weftctl")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(text, "weftctl"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		code int
		why  string
	}{
		{"of another architecture", []string{"-from", here, "-arch", "arm64"}, 1, "built for EM_X86_64, not for arm64"},
		{"a program is missing", []string{"-from", missing}, 1, "pack weft-vswitch"},
		{"a script", []string{"-from", text}, 1, "no program for linux"},
		{"a name without a tag", []string{"-from", here, "-name", "localhost/weft"}, 2, "is not a full name"},
		{"a name without a place", []string{"-from", here, "-name", "weft:1"}, 2, "is not a full name"},
		{"an unknown architecture", []string{"-from", here, "-arch", "mips"}, 2, "neither amd64 nor arm64"},
		{"a word too many", []string{"-from", here, "word"}, 2, `unexpected argument "word"`},
		{"an unknown flag", []string{"-nonsense"}, 2, "nonsense"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "image.tar")
			var stdout, stderr bytes.Buffer
			code := run(append([]string{"-o", out, "-name", "localhost/weft:v1"}, tt.args...), &stdout, &stderr)
			if code != tt.code || !strings.Contains(stderr.String(), tt.why) {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, stderr.String())
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), "*")); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}
