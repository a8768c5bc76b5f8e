// Package version returns the version of a program.
package version

import (
	"runtime/debug"
	"strings"
)

// version is set by the linker to the output of tools/version.sh.
var version string

// unreleased is the version of programs that were built without make: the next release.
const unreleased = "v0.1.0-dev"

// String returns the version with the commit, for example "weft v0.1.0 (3f2a9c1d0b4e)". It is the same for all programs
// of one build.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return describe(version, info)
}

// Number returns the version alone, for example "v0.1.0". It is the tag of the image of the same build, and a semantic
// version.
func Number() string {
	info, _ := debug.ReadBuildInfo()
	return number(version, info)
}

// describe adds the commit to the version, unless the version has it; info may be nil.
func describe(linked string, info *debug.BuildInfo) string {
	version := number(linked, info)
	commit := recorded(info)
	hash, _, _ := strings.Cut(commit, "-")
	if hash == "" || strings.Contains(version, ".g"+hash) {
		return "weft " + version
	}
	return "weft " + version + " (" + commit + ")"
}

// number is the version that the linker set, else the version of the module.
func number(linked string, info *debug.BuildInfo) string {
	switch {
	case linked != "":
		return linked
	case info != nil && strings.HasPrefix(info.Main.Version, "v") && !strings.HasPrefix(info.Main.Version, "v0.0.0-"):
		return info.Main.Version
	}
	return unreleased
}

// recorded returns the first twelve digits of the commit in the build information, with a suffix if the sources differ
// from it.
func recorded(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit := settings["vcs.revision"]
	if len(commit) > 12 {
		commit = commit[:12]
	}
	if commit != "" && settings["vcs.modified"] == "true" {
		commit += "-dirty"
	}
	return commit
}
