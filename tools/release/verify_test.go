package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// finished returns the options of a release in a new directory with the files.
func finished(t *testing.T, files map[string]string) options {
	t.Helper()
	o := options{out: t.TempDir(), version: version, repository: "registry.example/weft"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(o.out, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// expect compares an error with the expected text; "" is no error.
func expect(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestChecksumsMustCoverEveryFile(t *testing.T) {
	const digests = "559aead08264d5795d3909718cdd05abd49572e84fe55590eef31a88a08fdffd  a\ndf7e70e5021544f4834bbee64a9e3789febc4be81470df629cad6ddb03320a5c  b\n"
	for _, tt := range []struct {
		name, sums, want string
		missing          string
	}{
		{name: "all", sums: digests},
		{name: "one lacks", sums: digests[:strings.Index(digests, "\n")+1], want: "SHA256SUMS lacks b"},
		{name: "of another content", sums: strings.Replace(digests, "df7e", "df7f", 1), want: "another digest of b"},
		{name: "of a missing file", sums: digests, missing: "b", want: "SHA256SUMS lists b, which does not exist"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{"a": "A", "b": "B", sums: tt.sums}
			delete(files, tt.missing)
			expect(t, finished(t, files).verifySums(), tt.want)
		})
	}
}

func TestInstallationMustHaveTheImageOfTheRelease(t *testing.T) {
	const agent = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent}\nspec:\n  template:\n    spec:\n" +
		"      initContainers: [{name: i, image: 'registry.example/weft:" + version + "'}]\n" +
		"      containers: [{name: a, image: 'registry.example/weft:" + version + "'}]\n"
	for _, tt := range []struct{ name, text, want string }{
		{"the image", "# a comment\n---\n" + agent, ""},
		{
			"another tag", strings.Replace(agent, version+"'}]\n      c", "v9'}]\n      c", 1),
			`DaemonSet agent has the image "registry.example/weft:v9"`,
		},
		{
			"another repository", strings.Replace(agent, "registry.example/weft", "localhost/weft", 1),
			`the image "localhost/weft:`,
		},
		{"no image", strings.Replace(agent, ", image: 'registry.example/weft:"+version+"'", "", 1), `the image ""`},
		{"no container", "apiVersion: v1\nkind: Namespace\n", "no container"},
		{"no object", agent + "---\nmetadata: {name: x}\n", "no kind"},
		{"no YAML", agent + "---\na: [\n", "yaml"},
		{"a repeated key", agent + "kind: Pod\n", "already set"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, finished(t, map[string]string{installation: tt.text}).verifyInstallation(), tt.want)
		})
	}
}

func TestImageMustHaveTheNameOfTheRelease(t *testing.T) {
	name := "weft-image_" + version + ".oci.tar"
	o := finished(t, map[string]string{name: string(released(t, "-from", programs(t))[name])})
	expect(t, o.verifyImageName(), "")
	o.repository = "registry.example/other"
	expect(t, o.verifyImageName(), "is not the image registry.example/other:"+version)
}

// The small program has the modules of the SBOM, in both directions, under its own name and architecture only.
func TestModulesOfAProgramMustBeThoseOfTheSBOM(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", file, "./testdata/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := exec.CommandContext(t.Context(), "go", "version", "-m", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := parseProgram(string(info)).modules
	if len(modules) < 3 || !strings.HasPrefix(modules[0], "stdlib 1.") {
		t.Fatalf("modules %v", modules)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Link(file, other); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file, arch string
		listed           []string
		want             string
	}{
		{"the same", file, "arm64", modules, ""},
		{"one lacks", file, "arm64", modules[:len(modules)-1], "the SBOM lacks its module " + modules[len(modules)-1]},
		{
			"one more", file, "arm64", append(slices.Clone(modules), "example.org/x v1.0.0"),
			"it does not have the module example.org/x v1.0.0",
		},
		{
			"another version", file, "arm64", append([]string{"stdlib 1.0"}, modules[1:]...),
			"the SBOM lacks its module stdlib",
		},
		{"another program", other, "arm64", modules, "testdata/program for arm64"},
		{"another architecture", file, "amd64", modules, "testdata/program for arm64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			listed := map[string][]string{filepath.Base(tt.file) + "_linux_" + tt.arch: tt.listed}
			expect(t, options{}.verifyModules(tt.file, tt.arch, listed), tt.want)
		})
	}
}

func TestProgramMustHaveTheVersionOfTheRelease(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	write := func(text string) {
		if err := os.WriteFile(file, []byte("#!/bin/sh\necho "+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	o := options{version: version}
	native := runtime.GOARCH
	write("weft " + version)
	expect(t, o.verifyVersion(file, native, nil), "")
	write("weft " + version + "0")
	expect(t, o.verifyVersion(file, native, nil), "--version prints")
	write("weft; exit 1")
	expect(t, o.verifyVersion(file, native, nil), "--version: exit status 1")
	expect(t, o.verifyVersion(file, "other", []byte("x"+version+"x")), "")
	expect(t, o.verifyVersion(file, "other", []byte("x v1 x")), "does not contain the version")
}

// The SBOM and its verification read replacements in the same way, from different sources.
func TestReplacedModulesAreListedAsTheirReplacements(t *testing.T) {
	const text = "path\texample.org/w/cmd/w\nmod\texample.org/w\t(devel)\t\ndep\texample.org/a\tv1.0.0\th1:a=\ndep\texample.org/b\tv1.0.0\n" +
		"=>\texample.org/fork\tv1.2.0+incompatible\th1:b=\ndep\texample.org/c\tv0.3.0\th1:c=\nbuild\tGOARCH=arm64\n"
	info, err := debug.ParseBuildInfo(text)
	if err != nil {
		t.Fatal(err)
	}
	info.GoVersion = "go1.26.1"
	components, err := modulesOf(info)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, c := range components {
		listed = append(listed, c.Name+" "+c.Version)
	}
	want := []string{
		"stdlib 1.26.1", "example.org/a v1.0.0", "example.org/fork v1.2.0+incompatible", "example.org/c v0.3.0",
	}
	if !slices.Equal(listed, want) {
		t.Errorf("SBOM: %v", listed)
	}
	if p := parseProgram("w: go1.26.1\n\t" + strings.ReplaceAll(text, "\n", "\n\t")); !slices.Equal(p.modules, want) ||
		p.path != "example.org/w/cmd/w" || p.arch != "arm64" {
		t.Errorf("verification: %+v", p)
	}
	info.Deps[0].Replace = &debug.Module{Path: "../a"}
	_, err = modulesOf(info)
	expect(t, err, "module example.org/a is replaced by the directory ../a")
}
