package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/tools/oci"
)

// verify checks the finished files of a release against each other, and reports all problems.
func (o options) verify() error {
	return errors.Join(o.verifySums(), o.verifyInstallation(), o.verifyImageName(), o.verifyPrograms())
}

const sums = "SHA256SUMS"

// verifySums checks that SHA256SUMS has the digest of every other file, and of no file that is missing.
func (o options) verifySums() error {
	text, err := os.ReadFile(filepath.Join(o.out, sums))
	if err != nil {
		return err
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(text)) {
		digest, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		listed[name] = digest
	}
	files, err := os.ReadDir(o.out)
	errs := []error{err}
	for _, f := range files {
		if f.Name() == sums {
			continue
		}
		content, err := os.ReadFile(filepath.Join(o.out, f.Name()))
		digest, has := listed[f.Name()]
		switch {
		case err != nil:
			errs = append(errs, err)
		case !has:
			errs = append(errs, fmt.Errorf("%s lacks %s", sums, f.Name()))
		case digest != fmt.Sprintf("%x", sha256.Sum256(content)):
			errs = append(errs, fmt.Errorf("%s has another digest of %s", sums, f.Name()))
		}
		delete(listed, f.Name())
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		errs = append(errs, fmt.Errorf("%s lists %s, which does not exist", sums, name))
	}
	return errors.Join(errs...)
}

// tagged returns the name of the release's image.
func (o options) tagged() string { return o.repository + ":" + o.version }

const installation = "install.yaml"

// verifyInstallation checks that the objects of install.yaml can be read, and that their containers have the image of
// the release.
func (o options) verifyInstallation() error {
	text, err := os.ReadFile(filepath.Join(o.out, installation))
	if err != nil {
		return err
	}
	var errs []error
	found := 0
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", installation, err))
			continue
		}
		if object == nil { // a comment
			continue
		}
		if object["kind"] == nil || object["apiVersion"] == nil {
			errs = append(errs, fmt.Errorf("%s: an object has no kind or apiVersion: %.80q", installation, document))
		}
		for _, name := range imagesOf(object) {
			if found++; name != o.tagged() {
				errs = append(errs,
					fmt.Errorf("%s: %s %s has the image %q, expected %s", installation, object["kind"], nameOf(object),
						name, o.tagged()))
			}
		}
	}
	if found == 0 {
		errs = append(errs, fmt.Errorf("%s has no container", installation))
	}
	return errors.Join(errs...)
}

func nameOf(object map[string]any) any {
	about, _ := object["metadata"].(map[string]any)
	return about["name"]
}

// imagesOf returns the images of all containers in a part of an object.
func imagesOf(part any) (images []string) {
	switch part := part.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(part)) {
			if key == "containers" || key == "initContainers" {
				images = append(images, imagesOfContainers(part[key])...)
			} else {
				images = append(images, imagesOf(part[key])...)
			}
		}
	case []any:
		for _, item := range part {
			images = append(images, imagesOf(item)...)
		}
	}
	return images
}

func imagesOfContainers(list any) (images []string) {
	containers, _ := list.([]any)
	for _, c := range containers {
		if container, is := c.(map[string]any); is && container["name"] != nil {
			name, _ := container["image"].(string)
			images = append(images, name)
		}
	}
	return images
}

// verifyImageName checks that the image has the name in install.yaml: containerd imports it under that name.
func (o options) verifyImageName() error {
	name := "weft-image_" + o.version + ".oci.tar"
	f, err := os.Open(filepath.Join(o.out, name))
	if err != nil {
		return err
	}
	defer f.Close()
	files, err := contents(f, func(file string) bool { return file == "index.json" })
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != o.tagged() {
		return fmt.Errorf("%s is not the image %s alone", name, o.tagged())
	}
	return nil
}

// contents returns the selected files of a tar.
func contents(from io.Reader, selected func(name string) bool) (map[string][]byte, error) {
	files := map[string][]byte{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg || !selected(h.Name) {
			continue
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

// verifyPrograms checks the programs in the archives: their versions, and their modules against those in the SBOM.
func (o options) verifyPrograms() error {
	bom, err := o.readSBOM()
	if err != nil {
		return err
	}
	var errs []error
	for _, arch := range slices.Sorted(maps.Keys(oci.Machines)) {
		errs = append(errs, o.verifyArchive(arch, bom))
	}
	return errors.Join(errs...)
}

func (o options) verifyArchive(arch string, listed map[string][]string) error {
	name := "weft_" + o.version + "_linux_" + arch + ".tar.gz"
	raw, err := os.ReadFile(filepath.Join(o.out, name))
	if err != nil {
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	files, err := contents(z, func(string) bool { return true })
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	dir, err := os.MkdirTemp("", "weft-release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var errs []error
	for _, program := range oci.Programs {
		content, has := files[path.Join("weft_"+o.version+"_linux_"+arch, program)]
		if !has {
			errs = append(errs, fmt.Errorf("%s lacks %s", name, program))
			continue
		}
		file := filepath.Join(dir, program)
		if err := os.WriteFile(file, content, 0o700); err != nil {
			return err
		}
		if err := errors.Join(o.verifyModules(file, arch, listed), o.verifyVersion(file, arch, content)); err != nil {
			errs = append(errs, fmt.Errorf("%s for %s: %w", program, arch, err))
		}
	}
	return errors.Join(errs...)
}

// verifyVersion runs a program of this machine's architecture. Another program must contain the version.
func (o options) verifyVersion(file, arch string, content []byte) error {
	if arch != runtime.GOARCH {
		if !bytes.Contains(content, []byte(o.version)) {
			return fmt.Errorf("it does not contain the version %s", o.version)
		}
		return nil
	}
	out, err := exec.Command(file, "--version").Output() //nolint:noctx // the release waits for it
	if err != nil {
		return fmt.Errorf("--version: %w", err)
	}
	if words := strings.Fields(string(out)); len(words) < 2 || words[0] != "weft" || words[1] != o.version {
		return fmt.Errorf("--version prints %q, expected weft %s", strings.TrimSpace(string(out)), o.version)
	}
	return nil
}

// readSBOM returns the modules of each program of the SBOM, by BOMRef, as "path version".
func (o options) readSBOM() (map[string][]string, error) {
	f, err := os.Open(filepath.Join(o.out, "weft_"+o.version+".cdx.json"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return nil, fmt.Errorf("SBOM: %w", err)
	}
	if bom.Components == nil || bom.Dependencies == nil {
		return nil, errors.New("SBOM: it has no components or no dependencies")
	}
	names := map[string]string{}
	for _, c := range *bom.Components {
		names[c.BOMRef] = c.Name + " " + c.Version
	}
	listed := map[string][]string{}
	for _, d := range *bom.Dependencies {
		for _, ref := range *d.Dependencies {
			if names[ref] == "" {
				return nil, fmt.Errorf("SBOM: %s depends on %s, which is no component", d.Ref, ref)
			}
			listed[d.Ref] = append(listed[d.Ref], names[ref])
		}
	}
	return listed, nil
}

// verifyModules compares the modules of a program, as go version -m prints them, with its modules in the SBOM, in both
// directions. It also detects a program with the name or in the archive of another one.
func (o options) verifyModules(file, arch string, listed map[string][]string) error {
	out, err := exec.Command("go", "version", "-m", file).Output() //nolint:noctx // the release waits for it
	if err != nil {
		return fmt.Errorf("go version -m: %w", err)
	}
	p := parseProgram(string(out))
	name := filepath.Base(file)
	var errs []error
	if path.Base(p.path) != name || p.arch != arch {
		errs = append(errs, fmt.Errorf("it is %s for %s", p.path, p.arch))
	}
	has := listed[name+"_linux_"+arch]
	for _, m := range p.modules {
		if !slices.Contains(has, m) {
			errs = append(errs, fmt.Errorf("the SBOM lacks its module %s", m))
		}
	}
	for _, m := range has {
		if !slices.Contains(p.modules, m) {
			errs = append(errs, fmt.Errorf("it does not have the module %s of the SBOM", m))
		}
	}
	return errors.Join(errs...)
}

// program is the output of go version -m.
type program struct {
	path, arch string
	modules    []string // "path version", the standard library as stdlib
}

// goVersion matches the version of Go in the first line, behind the name of the file.
var goVersion = regexp.MustCompile(`: go(\S+)`)

func parseProgram(text string) (p program) {
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if m := goVersion.FindStringSubmatch(line); i == 0 && m != nil {
			p.modules = append(p.modules, "stdlib "+m[1])
		}
		switch {
		case i == 0 || len(words) < 2:
		case words[0] == "path":
			p.path = words[1]
		case words[0] == "build" && strings.HasPrefix(words[1], "GOARCH="):
			p.arch = strings.TrimPrefix(words[1], "GOARCH=")
		case words[0] == "dep" && len(words) > 2:
			p.modules = append(p.modules, words[1]+" "+words[2])
		case words[0] == "=>" && len(words) > 2: // of the module before
			p.modules[len(p.modules)-1] = words[1] + " " + words[2]
		}
	}
	return p
}
