// Package version says which build of Weft a program is.
package version

import (
	"runtime/debug"
	"strings"
)

// version is set by the linker to what git describe says of the sources.
var version string

// unreleased is the version of sources that no tag names: the release that they lead to.
const unreleased = "v0.1.0-dev"

// String is the same for all programs of one build, for example "weft v0.1.0 (3f2a9c1d0b4e)".
func String() string {
	info, _ := debug.ReadBuildInfo()
	return describe(version, info)
}

// describe joins what the linker said with what the Go tool knows; info may be nil.
func describe(linked string, info *debug.BuildInfo) string {
	version, commit := unreleased, recorded(info)
	switch {
	case isRelease(linked):
		version = linked
	case linked != "":
		commit = linked // of sources without a tag, git describes the commit
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

// recorded is the commit that the Go tool found, twelve digits of it, marked when the sources differ from it.
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
