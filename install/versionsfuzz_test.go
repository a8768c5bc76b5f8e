package install

import (
	"slices"
	"testing"
)

// FuzzVersions reads any answer of a plugin to VERSION: versions in common are some of ours, and an error is short.
func FuzzVersions(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}`))
	f.Add([]byte(`{"supportedVersions":["","9"]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		ours := []string{"1.1.0", "0.4.0", "1.0.0"}
		both, err := common(ours, versionsIn(answer))
		if err != nil {
			if len(err.Error()) > 500 {
				t.Errorf("the error has %d octets", len(err.Error()))
			}
			return
		}
		single, all := offer(both)
		if len(all) == 0 {
			all = []string{single}
		}
		for _, v := range all {
			if !slices.Contains(ours, v) || !slices.Contains(all, single) {
				t.Errorf("%q offers %q of %q", answer, single, all)
			}
		}
	})
}
