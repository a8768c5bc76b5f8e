package serving_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weftnet/weft/proto/serving"
)

func TestWithinReportsARecentMark(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	if serving.Within(socket, time.Hour) {
		t.Error("Within without a mark")
	}
	for what, at := range map[string]time.Duration{"old": -2 * time.Hour, "in the future": time.Hour} {
		if err := serving.Mark(socket); err != nil {
			t.Fatal(err)
		}
		if !serving.Within(socket, time.Hour) {
			t.Error("not Within right after Mark")
		}
		then := time.Now().Add(at)
		if err := os.Chtimes(serving.File(socket), then, then); err != nil {
			t.Fatal(err)
		}
		if serving.Within(socket, time.Hour) {
			t.Errorf("Within with a mark that is %s", what)
		}
	}
	if err := serving.Mark(filepath.Join(socket, "none", "s")); err == nil {
		t.Error("no error for a missing directory")
	}
}
