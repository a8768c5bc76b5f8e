package kvscheduler_test

import (
	"runtime"
	"time"

	"pgregory.net/rapid"
)

// eventually fails unless the condition comes true within ten seconds.
func eventually(t rapid.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen in time: %s", what)
		}
	}
}
