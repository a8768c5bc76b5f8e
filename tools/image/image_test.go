package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/weftnet/weft/tools/oci"
)

// source is the smallest Go program.
const source = "package main\n\nfunc main() {}\n"

// builds returns a directory with the source compiled for an architecture under the names of all programs.
func builds(t *testing.T, arch string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o",
		filepath.Join(dir, oci.Programs[0]), file)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, name := range oci.Programs[1:] {
		if err := os.Link(filepath.Join(dir, oci.Programs[0]), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packed runs the command and returns its output file.
func packed(t *testing.T, from, arch string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-from", from, "-arch", arch, "-name", "localhost/weft:v1.2.3", "-o", out}, &stdout,
		&stderr); code != 0 {
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
			t.Errorf("%s occurs twice", h.Name)
		}
		entries[h.Name] = entry{*h, content}
	}
}

func TestTheArchiveIsAValidOCILayout(t *testing.T) {
	for arch := range oci.Machines {
		t.Run(arch, func(t *testing.T) {
			from := builds(t, arch)
			dir := t.TempDir()
			files := untar(t, packed(t, from, arch))
			if len(files) != 5 {
				t.Errorf("%d files in the archive, want the index, the layout and three blobs", len(files))
			}
			for name, f := range files {
				if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700),
					os.WriteFile(filepath.Join(dir, name), f.content, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			index, err := layout.ImageIndexFromPath(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate.Index(index); err != nil { // digests, sizes and diff IDs
				t.Error(err)
			}
			top, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			platform := v1.Platform{Architecture: arch, OS: "linux"}
			if m := top.Manifests; len(m) != 1 ||
				m[0].Annotations["io.containerd.image.name"] != "localhost/weft:v1.2.3" ||
				!m[0].Platform.Equals(platform) {
				t.Errorf("index %+v", top)
			}
			image, err := index.Image(top.Manifests[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			config, err := image.ConfigFile()
			if err != nil || !config.Platform().Equals(platform) ||
				config.Config.Entrypoint[0] != "/usr/local/bin/weft-agent" {
				t.Errorf("config %+v (%v)", config, err)
			}
			inspectLayer(t, untar(t, layerIn(t, image)), from)
		})
	}
}

// layerIn returns the only layer of an image.
func layerIn(t *testing.T, image v1.Image) []byte {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers (%v)", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// inspectLayer checks the files of a container.
func inspectLayer(t *testing.T, inside map[string]entry, from string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(from, oci.Programs[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range oci.Programs {
		if f := inside["usr/local/bin/"+name]; f.Mode != 0o755 || f.Uid != 0 || !bytes.Equal(f.content, content) {
			t.Errorf("%s: mode %o, owner %d, %d bytes", name, f.Mode, f.Uid, len(f.content))
		}
	}
	for path, target := range map[string]string{
		"usr/local/bin/weft-ipam":    "weft-cni",
		"usr/local/bin/kubectl-weft": "weftctl",
		"var/run":                    "../run",
	} {
		if inside[path].Linkname != target {
			t.Errorf("%s is a link to %q", path, inside[path].Linkname)
		}
	}
	for path, f := range inside {
		parent := filepath.Dir(strings.TrimSuffix(path, "/")) + "/"
		if _, ok := inside[parent]; parent != "./" && !ok {
			t.Errorf("the directory of %s is missing", path)
		}
		if f.ModTime.Unix() != 0 {
			t.Errorf("%s has time %v", path, f.ModTime)
		}
	}
}

func TestTheSameProgramsHaveTheSameArchive(t *testing.T) {
	first := builds(t, "amd64")
	second := builds(t, "amd64")
	if err := os.Chmod(filepath.Join(second, oci.Programs[0]), 0o700); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(packed(t, first, "amd64"), packed(t, second, "amd64")) {
		t.Error("the archives differ")
	}
}

func TestInvalidProgramsAndFlagsAreRejected(t *testing.T) {
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
		{"another architecture", []string{"-from", here, "-arch", "arm64"}, 1, "built for EM_X86_64, not for arm64"},
		{"a missing program", []string{"-from", missing}, 1, "pack weft-vswitch"},
		{"a script", []string{"-from", text}, 1, "not a linux program"},
		{"a name without a tag", []string{"-from", here, "-name", "localhost/weft"}, 2, "is not a full name"},
		{"a name without a registry", []string{"-from", here, "-name", "weft:1"}, 2, "is not a full name"},
		{"an unknown architecture", []string{"-from", here, "-arch", "mips"}, 2, "neither amd64 nor arm64"},
		{"an argument", []string{"-from", here, "word"}, 2, `unexpected argument "word"`},
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
