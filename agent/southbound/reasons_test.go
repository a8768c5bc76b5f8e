package southbound

import (
	"context"
	"strings"
	"testing"

	"github.com/weftnet/weft/vswitch/forward"
)

// An operator reads the reason of each drop of weft-vswitch in words.
func TestReasonsOfTheVswitchAreExplained(t *testing.T) {
	engine, err := forward.New(forward.Config{})
	if err != nil {
		t.Fatal(err)
	}
	names := engine.Errors()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := engine.Run(ctx); err != nil { // frees the engine
		t.Log(err)
	}
	if len(names) < 50 {
		t.Errorf("weft-vswitch has %d reasons", len(names))
	}
	for name := range names {
		node, reason, _ := strings.Cut(name, "/")
		if text, _ := Explain(node, reason); text == "" {
			t.Errorf("%s has no explanation", name)
		}
	}
}

func TestStatisticsAreNoDrops(t *testing.T) {
	for reason, want := range map[string]bool{
		"L2 learn misses":         true,
		"multicast not forwarded": true,
		"mtu_exceeded":            false,
		"unheard of":              false,
	} {
		if _, statistic := Explain("node", reason); statistic != want {
			t.Errorf("%s: statistic %t", reason, statistic)
		}
	}
	if text, _ := Explain("memif-tx", "unheard of"); text == "" {
		t.Error("a refused packet has no explanation")
	}
}
