package main

import (
	"bytes"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/programs"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func TestTheDemoSucceeds(t *testing.T) {
	netnstest.RequireTap(t)
	dir := programs.Build(t, "github.com/weftnet/weft/memif/examples/icmpresponder")
	var out bytes.Buffer
	if err := run(t.Context(), &out, dir, false); err != nil {
		t.Errorf("%s\n%v", out.String(), err)
	}
}
