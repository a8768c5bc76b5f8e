package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/weftnet/weft/tools/oci"
)

// distVariable names the environment variable with the directory of a release. make release sets it.
const distVariable = "WEFT_DIST"

// TestDist checks the files of a release as their users get them.
func TestDist(t *testing.T) {
	dist := os.Getenv(distVariable)
	if dist == "" {
		t.Skip("make release runs this test with the files that it has made")
	}
	names, err := filepath.Glob(filepath.Join(dist, "weft_*.cdx.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("SBOMs: %v (%v)", names, err)
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(names[0]), "weft_"), ".cdx.json")
	from := t.TempDir()
	for arch := range oci.Machines {
		archive, err := os.ReadFile(filepath.Join(dist, "weft_"+version+"_linux_"+arch+".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		files := unpacked(t, archive)
		if err := os.Mkdir(filepath.Join(from, arch), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, program := range oci.Programs {
			content := files["weft_"+version+"_linux_"+arch+"/"+program]
			if err := os.WriteFile(filepath.Join(from, arch, program), content, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	sbom, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	checkModules(t, sbom, from)
	for _, program := range oci.Programs {
		out, err := exec.CommandContext(t.Context(), filepath.Join(from, runtime.GOARCH, program), "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), version) {
			t.Errorf("%s --version: %s (%v), want %s", program, out, err, version)
		}
	}
	checkSums(t, dist)
	checkManifests(t, filepath.Join(dist, "install.yaml"), version)
}

// checkSums checks that SHA256SUMS has the sums of all other files.
func checkSums(t *testing.T, dist string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		listed[words[1]] = words[0]
	}
	sums := map[string]string{}
	err = filepath.WalkDir(dist, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "SHA256SUMS" {
			return err
		}
		content, err := os.ReadFile(path)
		sums[d.Name()] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	})
	if err != nil || !maps.Equal(listed, sums) {
		t.Errorf("SHA256SUMS has %v, the files have %v (%v)", listed, sums, err)
	}
}

var imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: "?([^"\s]+)"?$`)

// checkManifests checks that all containers use the image of the release.
func checkManifests(t *testing.T, path, version string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	images := imageLine.FindAllSubmatch(text, -1)
	if len(images) < 3 { // agent, dataplane and controller
		t.Errorf("%d images in %s", len(images), path)
	}
	for _, image := range images {
		if !bytes.HasSuffix(image[1], []byte("/weft:"+version)) {
			t.Errorf("image %s, want one of version %s", image[1], version)
		}
	}
}

// checkModules compares the SBOM with what go version -m says of each program.
func checkModules(t *testing.T, sbom []byte, from string) {
	t.Helper()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(sbom), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{} // of modules, by reference
	programs := map[string]bool{}
	for _, c := range *bom.Components {
		if c.Type == cdx.ComponentTypeApplication {
			programs[c.BOMRef] = true
		} else {
			names[c.BOMRef] = c.Name + " " + c.Version
		}
	}
	used := map[string]bool{}
	for _, d := range *bom.Dependencies {
		var got []string
		for _, ref := range *d.Dependencies {
			used[ref] = true
			got = append(got, names[ref])
		}
		slices.Sort(got)
		program, arch, _ := strings.Cut(d.Ref, "_linux_")
		if want := modulesIn(t, filepath.Join(from, arch, program)); !slices.Equal(got, want) {
			t.Errorf("%s: the SBOM lists %q, the program has %q", d.Ref, got, want)
		}
		delete(programs, d.Ref)
	}
	if len(programs) > 0 || len(*bom.Dependencies) != len(oci.Machines)*len(oci.Programs) {
		t.Errorf("%d programs with modules, without: %v", len(*bom.Dependencies), programs)
	}
	for ref := range names {
		if !used[ref] {
			t.Errorf("the SBOM lists %s, which no program has", ref)
		}
	}
}

// modulesIn returns the modules of a program, and the standard library, as go version -m lists them. A replaced module is the line before
// its replacement.
func modulesIn(t *testing.T, program string) (modules []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(out), "\n")
	_, version, _ := strings.Cut(first, ": go")
	modules = append(modules, "stdlib "+version)
	for line := range strings.Lines(rest) {
		switch words := strings.Fields(line); {
		case len(words) > 2 && words[0] == "dep":
			modules = append(modules, words[1]+" "+words[2])
		case len(words) > 2 && words[0] == "=>":
			modules[len(modules)-1] = words[1] + " " + words[2]
		}
	}
	slices.Sort(modules)
	return modules
}
