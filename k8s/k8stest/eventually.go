package k8stest

import (
	"testing"
	"time"
)

// Patience is how long something may take that takes milliseconds on a machine with nothing else to do; client-go waits up
// to 30 s before it tries again what failed often.
const Patience = 90 * time.Second

// Eventually waits until something is so, and ends the test where it never is.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}
