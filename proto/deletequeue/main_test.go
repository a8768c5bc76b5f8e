package deletequeue

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/internal/syscalltest"
)

// TestMain can run the test binary as a plugin's process (see lock_test.go), and as a process that is killed (see
// durable_test.go).
func TestMain(m *testing.M) {
	syscalltest.Main(runVictim)
	if dir := os.Getenv(writerDir); dir != "" {
		os.Exit(writer(dir))
	}
	goleak.VerifyTestMain(m)
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func keyOf(container string) Key {
	return Key{Network: "weft", ContainerID: container, IfName: "eth0"}
}

func entryOf(container string) Entry { return NewEntry(keyOf(container), start) }

// add adds an entry unconditionally.
func (q *Queue) add(ctx context.Context, e Entry) error {
	return q.AddUnless(ctx, e, func() bool { return false })
}

func open(t *testing.T, dir string) *Queue {
	t.Helper()
	q, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func add(t *testing.T, q *Queue, entries ...Entry) {
	t.Helper()
	for _, e := range entries {
		if err := q.add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func wantLen(t *testing.T, q *Queue, want int) {
	t.Helper()
	if got, err := q.Len(); err != nil || got != want {
		t.Fatalf("queue holds %d entries (%v), want %d", got, err, want)
	}
}
