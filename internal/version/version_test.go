package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	build := func(version, revision, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified},
		}}
	}
	const revision = "3f2a9c1d0b4e5f60718293a4b5c6d7e8f9001122"
	tests := []struct {
		name   string
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		{"a release by make", "v0.1.0", build("(devel)", revision, "false"), "weft v0.1.0 (3f2a9c1d0b4e)"},
		{
			"a commit after a release by make", "v0.1.1-dev.3.g3f2a9c1d0b4e", build("(devel)", revision, "false"),
			"weft v0.1.1-dev.3.g3f2a9c1d0b4e",
		},
		{
			"changed sources", "v0.1.1-dev.3.g3f2a9c1d0b4e.dirty.0123456789ab", build("(devel)", revision, "true"),
			"weft v0.1.1-dev.3.g3f2a9c1d0b4e.dirty.0123456789ab",
		},
		{"make without git", "v0.1.0-dev.src.0123456789ab", nil, "weft v0.1.0-dev.src.0123456789ab"},
		{"go install of a release", "", build("v0.2.0", "", ""), "weft v0.2.0"},
		{
			"go build of a checkout without tags", "", build("v0.0.0-20260301120000-3f2a9c1d0b4e", revision, "false"),
			"weft v0.1.0-dev (3f2a9c1d0b4e)",
		},
		{"go test", "", build("(devel)", "", ""), "weft v0.1.0-dev"},
		{"no build information", "", nil, "weft v0.1.0-dev"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := describe(tt.linked, tt.info); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestNumberIsPartOfTheVersion(t *testing.T) {
	if n := Number(); !strings.HasPrefix(String(), "weft "+n) || strings.ContainsAny(n, " ()") {
		t.Errorf("%q of %q", n, String())
	}
}

func TestStringNamesTheProject(t *testing.T) {
	if s := String(); !strings.HasPrefix(s, "weft v") {
		t.Errorf("%q", s)
	}
}
