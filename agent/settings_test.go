package agent

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// The test parses the output of weftctl as a configuration, and compares it with the agent's file.
func TestWeftctlShowsTheAgentsConfiguration(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{CoolDown: 1234 * time.Millisecond, AllowIPForwarding: true})
	shown := func() string {
		text, err := l.Weftctl(t.Context(), "settings")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	read := func(file string) config.Config {
		c, err := config.Read(pflag.NewFlagSet("", pflag.ContinueOnError), file, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	copied := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(copied, []byte(shown()), 0o600); err != nil {
		t.Fatal(err)
	}
	told := read(l.Config())
	tells := read(copied)
	if got, want := tells.String(), told.String(); got != want || tells.Addresses.CoolDown != 1234*time.Millisecond {
		t.Errorf("it runs with\n%s\nand was told\n%s", got, want)
	}
	if err := l.SetNetworks([]node.Network{
		{Name: "teal", Type: "L2", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.7.0.0/24")}},
	}); err != nil {
		t.Fatal(err)
	}
	l.eventually("weftctl shows a network that was added later", func() bool {
		return strings.Contains(shown(), `"teal"`)
	})
}
