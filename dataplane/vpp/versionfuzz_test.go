package vpp

import (
	"fmt"
	"slices"
	"testing"
)

// FuzzVersion parses any version. A release parses as itself, and only VPP must have VPP's messages.
func FuzzVersion(f *testing.F) {
	for _, version := range []string{
		"vpe 25.10-release", "vpe 26.02-rc0~12-g0", "vpe 25.", "vpe", "weft-vswitch v0.1.0", "vpe -1.-2", "vpe 1e9.3",
	} {
		f.Add(version)
	}
	f.Fuzz(func(t *testing.T, version string) {
		r, isVPP := releaseOf(version)
		if isVPP {
			if again, ok := releaseOf(fmt.Sprintf("%s %d.%02d", vppProgram, r.year, r.month)); !ok || again != r {
				t.Errorf("%q is release %v, which reads as %v, %v", version, r, again, ok)
			}
		}
		if asked := len(neededBy(version)) > len(Needed); asked != isVPP {
			t.Errorf("%q: is a VPP: %v, and is asked as one: %v", version, isVPP, asked)
		}
		for _, known := range allFacts {
			avoided := slices.ContainsFunc(factsOf(version), func(f fact) bool { return f.message == known.message })
			if avoided != (isVPP && r.before(known.fixed)) {
				t.Errorf("%q: %s is avoided: %v", version, known.message, avoided)
			}
		}
	})
}
