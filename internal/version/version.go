// Package version returns the version of a program.
package version

import (
	"runtime/debug"
	"strings"
)

// version is set by the linker to the output of git describe.
var version string

// unreleased is the version of sources without a tag: the next release.
const unreleased = "v0.1.0-dev"

// String returns the version, for example "weft v0.1.0 (3f2a9c1d0b4e)". It is the same for all programs of one build.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return describe(version, info)
}

// describe combines the version of the linker with the build information of the Go tool; info may be nil.
func describe(linked string, info *debug.BuildInfo) string {
	version, commit := unreleased, recorded(info)
	switch {
	case isRelease(linked):
		version = linked
	case linked != "":
		commit = linked // without a tag, git describe prints the commit
	case info != nil && isRelease(info.Main.Version) && !strings.HasPrefix(info.Main.Version, "v0.0.0-"):
		version = info.Main.Version
	}
	if commit == "" {
		return "weft " + version
	}
	return "weft " + version + " (" + commit + ")"
}

func isRelease(v string) bool {
	return len(v) > 1 && v[0] == 'v' && v[1] >= '0' && v[1] <= '9'
}

// recorded returns the first twelve digits of the commit in the build information, with a suffix if the sources differ from it.
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
