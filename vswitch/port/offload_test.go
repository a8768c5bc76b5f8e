package port

import "testing"

func TestKernelRelease(t *testing.T) {
	for release, want := range map[string]bool{
		"6.2.0": true, "6.2": true, "6.18.44-arm64": true, "7.0-rc1": true, "6.2-rc1": true, "10.0": true,
		"6.1.99": false, "5.15.0-generic": false, "": false, "six.two": false, "6": false,
	} {
		if got := releaseSince(release, 6, 2); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}
