package serving_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weftnet/weft/proto/serving"
)

func TestAMarkIsGoodForAWhile(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	if serving.Within(socket, time.Hour) {
		t.Error("without a mark the agent is said to have served")
	}
	for what, at := range map[string]time.Duration{"old": -2 * time.Hour, "of a clock that went back": time.Hour} {
		if err := serving.Mark(socket); err != nil {
			t.Fatal(err)
		}
		if !serving.Within(socket, time.Hour) {
			t.Error("right after the mark the agent is said not to have served")
		}
		then := time.Now().Add(at)
		if err := os.Chtimes(serving.File(socket), then, then); err != nil {
			t.Fatal(err)
		}
		if serving.Within(socket, time.Hour) {
			t.Errorf("by a mark that is %s the agent is said to have served", what)
		}
	}
	if err := serving.Mark(filepath.Join(socket, "none", "s")); err == nil {
		t.Error("where no mark can be there is no error")
	}
}
