package agent

import (
	"log/slog"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/programs"
)

var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) { netnstest.Main(m, programs.Keep()) }
