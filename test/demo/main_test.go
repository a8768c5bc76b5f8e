package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/programs"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func TestTheDemoSucceeds(t *testing.T) {
	netnstest.Require(t)
	if err := netns.TapsAllowed(); err != nil {
		if strings.Contains(os.Getenv("WEFT_REQUIRE"), "netns") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := programs.Build(t, "github.com/weftnet/weft/memif/examples/icmpresponder")
	var out bytes.Buffer
	if err := run(t.Context(), &out, dir, false); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}
