package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/weftnet/weft/tools/oci"
)

// sbom lists the modules of all programs, and which program has which, in the format of CycloneDX. The linker wrote
// them into the programs.
func (o options) sbom() ([]byte, error) {
	modules := map[string]cdx.Component{}
	var programs []cdx.Component
	var uses []cdx.Dependency
	for _, arch := range slices.Sorted(maps.Keys(oci.Machines)) {
		for _, name := range oci.Programs {
			info, err := buildinfo.ReadFile(filepath.Join(o.from, arch, name))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			program := cdx.Component{
				BOMRef:  name + "_linux_" + arch,
				Type:    cdx.ComponentTypeApplication,
				Name:    name,
				Version: o.version,
			}
			var used []string
			of, err := modulesOf(info)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			for _, m := range of {
				modules[m.BOMRef] = m
				used = append(used, m.BOMRef)
			}
			programs = append(programs, program)
			uses = append(uses, cdx.Dependency{Ref: program.BOMRef, Dependencies: &used})
		}
	}
	components := programs
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		components = append(components, modules[ref])
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: o.time().Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: "weft", Type: cdx.ComponentTypeApplication, Name: "weft", Version: o.version},
	}
	bom.Components = &components
	bom.Dependencies = &uses
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return out.Bytes(), err
}

// modulesOf returns the modules of a program in the order of their names, with the standard library. A replaced module
// is listed as its replacement; a directory as a replacement has no version, so a program with one cannot be released.
func modulesOf(info *debug.BuildInfo) ([]cdx.Component, error) {
	all := []cdx.Component{library("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		path := m.Path
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version == "" || m.Version == "(devel)" {
			return nil, fmt.Errorf(
				"module %s is replaced by the directory %s, which has no version: remove the replacement from go.mod",
				path, m.Path)
		}
		all = append(all, library(m.Path, m.Version))
	}
	return all, nil
}

func library(path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
}
