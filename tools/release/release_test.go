package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/weftnet/weft/tools/oci"
)

const version = "v1.2.3-dev.4.g0123456789ab"

// programs builds a small program with modules for all architectures under the names of all programs.
func programs(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for arch := range oci.Machines {
		first := filepath.Join(dir, arch, oci.Programs[0])
		build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w -buildid=", "-o",
			first, "./testdata/program")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
		for _, name := range oci.Programs[1:] {
			if err := os.Link(first, filepath.Join(dir, arch, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// released runs the command and returns its files.
func released(t *testing.T, args ...string) map[string][]byte {
	t.Helper()
	out := t.TempDir()
	var stdout, stderr bytes.Buffer
	args = append(
		[]string{
			"-version", version, "-repository", "registry.example/weft", "-time", "1700000000", "-chart",
			"../../k8s/chart/weft", "-licence", "../../LICENSE", "-o", out,
		},
		args...)
	if code := run(args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	files := map[string][]byte{}
	for path := range strings.Lines(stdout.String()) {
		content, err := os.ReadFile(strings.TrimSpace(path))
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(strings.TrimSpace(path))] = content
	}
	return files
}

func TestARelease(t *testing.T) {
	from := programs(t)
	files := released(t, "-from", from)
	if len(files) != 6 {
		t.Errorf("%d files", len(files))
	}
	t.Run("the same programs have the same bytes", func(t *testing.T) {
		for name, again := range released(t, "-from", from) {
			if !bytes.Equal(files[name], again) {
				t.Errorf("%s differs", name)
			}
		}
	})
	t.Run("the SBOM lists every module of every program", func(t *testing.T) {
		checkModules(t, files["weft_"+version+".cdx.json"], filepath.Join(from, "arm64", "weftctl"))
	})
	t.Run("the image runs on all architectures", func(t *testing.T) {
		checkImage(t, files["weft-image_"+version+".oci.tar"])
	})
	t.Run("archives of programs", func(t *testing.T) {
		root := "weft_" + version + "_linux_arm64/"
		content, err := os.ReadFile(filepath.Join(from, "arm64", "weftctl"))
		if got := unpacked(t, files["weft_"+version+"_linux_arm64.tar.gz"]); err != nil || len(got) != 7 ||
			!bytes.Equal(got[root+"weftctl"], content) ||
			string(got[root+"kubectl-weft"]) != "-> weftctl" ||
			string(got[root+"kubectl_complete-weft"]) != "-> weftctl" || len(got[root+"LICENSE"]) == 0 {
			t.Errorf("%d files (%v)", len(got), err)
		}
	})
	t.Run("the chart names the image of the release", func(t *testing.T) {
		chart := unpacked(t, files["weft-"+version[1:]+".tgz"])
		about := string(chart["weft/Chart.yaml"])
		values := string(chart["weft/values.yaml"])
		if !strings.Contains(about, "\nversion: "+version[1:]+"\n") ||
			!strings.Contains(about, "appVersion: "+version+"\n") {
			t.Errorf("Chart.yaml:\n%s", about)
		}
		if !strings.Contains(values, "\n  name: registry.example/weft\n") || !strings.Contains(values, "# ") {
			t.Errorf("values.yaml:\n%s", values)
		}
		if len(chart["weft/files/crds/contivpp.io_ippools.yaml"]) == 0 || len(chart["weft/values.schema.json"]) == 0 {
			t.Errorf("%d files", len(chart))
		}
	})
}

// checkModules compares the SBOM with the output of go version -m.
func checkModules(t *testing.T, sbom []byte, program string) {
	t.Helper()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(sbom), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, c := range *bom.Components {
		listed[c.Name+" "+c.Version] = true
	}
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 2 && (words[0] == "dep" || words[0] == "=>") {
			count++
			if !listed[words[1]+" "+words[2]] {
				t.Errorf("the SBOM lacks %s %s", words[1], words[2])
			}
		}
	}
	_, goVersion, _ := strings.Cut(strings.SplitN(string(out), "\n", 2)[0], ": go")
	if count < 2 || !listed["stdlib "+goVersion] {
		t.Errorf("%d modules, standard library %s: %v", count, goVersion, listed["stdlib "+goVersion])
	}
	if len(*bom.Dependencies) != 8 || len(*(*bom.Dependencies)[0].Dependencies) != count+1 {
		t.Errorf("dependencies of %d programs", len(*bom.Dependencies))
	}
	if bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" {
		t.Errorf("time %s", bom.Metadata.Timestamp)
	}
}

func checkImage(t *testing.T, archive []byte) {
	t.Helper()
	top := layoutOf(t, archive)
	m, err := top.IndexManifest()
	if err != nil || len(m.Manifests) != 1 ||
		m.Manifests[0].Annotations["io.containerd.image.name"] != "registry.example/weft:"+version {
		t.Fatalf("%+v (%v)", m, err)
	}
	index, err := top.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	inside, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range inside.Manifests {
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil || !config.Platform().Equals(*d.Platform) ||
			config.Config.Labels["org.opencontainers.image.version"] != version {
			t.Errorf("config %+v (%v)", config, err)
		}
		platforms = append(platforms, d.Platform.String())
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("platforms %v", platforms)
	}
}

// A registry accepts the chart, and has the same archive under its version.
func TestRegistriesAcceptTheChart(t *testing.T) {
	files := released(t, "-from", programs(t))
	top := layoutOf(t, files["weft-chart_"+version+".oci.tar"])
	m, err := top.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatal(err)
	}
	image, err := top.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	defer server.Close()
	tag, err := name.NewTag(
		strings.TrimPrefix(server.URL, "http://")+"/charts/weft:"+
			m.Manifests[0].Annotations["org.opencontainers.image.ref.name"],
		name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(tag)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := pulled.Manifest()
	if err != nil || manifest.Config.MediaType != chartConfig || len(manifest.Layers) != 1 ||
		manifest.Layers[0].MediaType != chartContent {
		t.Fatalf("%+v (%v)", manifest, err)
	}
	if hash, _, err := v1.SHA256(bytes.NewReader(files["weft-"+version[1:]+".tgz"])); err != nil ||
		hash != manifest.Layers[0].Digest {
		t.Errorf("the content is %s, the archive %s (%v)", manifest.Layers[0].Digest, hash, err)
	}
	raw, err := pulled.RawConfigFile()
	var about struct{ Name, Version string }
	if err := errors.Join(err, json.Unmarshal(raw, &about)); err != nil || about.Name != "weft" ||
		about.Version != version[1:] {
		t.Errorf("%s (%v)", raw, err)
	}
}

func TestInvalidFlagsAreRejected(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		why  string
	}{
		{[]string{"-version", "1.2.3", "-o", "x"}, exitUsage, "is not a version"},
		{[]string{"-version", "v1.2.3"}, exitUsage, "-o"},
		{[]string{"-version", "v1.2.3", "-o", "x"}, exitUsage, "-from"},
		{[]string{"-version", "v1.2.3", "-o", "x", "-only", "image"}, exitUsage, "-only"},
		{[]string{"-version", "v1.2.3", "-o", "x", "-verify", "-only", "chart"}, exitUsage, "-verify packs nothing"},
		{[]string{"-version", "v1.2.3", "-o", "nowhere", "-verify"}, exitFailed, "nowhere/SHA256SUMS"},
		{
			[]string{"-version", "v1.2.3", "-o", "x", "-from", "nowhere", "-chart", "../../k8s/chart/weft"}, exitFailed,
			"nowhere",
		},
		{[]string{"-version", "v1.2.3", "-o", "x", "-only", "chart", "-chart", "nowhere"}, exitFailed, "nowhere"},
	} {
		var stderr bytes.Buffer
		if code := run(tt.args, io.Discard, &stderr); code != tt.code || !strings.Contains(stderr.String(), tt.why) {
			t.Errorf("%v: exit code %d: %s", tt.args, code, stderr.String())
		}
	}
}

// layoutOf unpacks an archive of an OCI layout.
func layoutOf(t *testing.T, archive []byte) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	for name, content := range untar(t, bytes.NewReader(archive)) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func unpacked(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return untar(t, z)
}

func untar(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			files[h.Name] = []byte("-> " + h.Linkname)
		}
	}
}
