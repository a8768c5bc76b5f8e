package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// FuzzConfiguration reads any configuration file. Read returns an error or a valid configuration.
func FuzzConfiguration(f *testing.F) {
	for _, text := range []string{
		"stateDir: /var/lib/weft\ndataplane: {type: embedded}\n",
		"pools: [{name: a, cidr: 10.0.0.0/16}]\n", "log: {level: loud}\n", "{", "a: 1\n---\nb: 2\n",
		"dataPlane: 1", "http: {listen: 1.2.3.4}", "kubernetes: {node: n1, addresses: pools}",
		"masquerade: [10.0.0.0/8, ::ffff:1.2.3.0/120]", "? [a]\n: 1\n", "stateDir: [a, {b: c}]",
		"networks: [{name: a, cidrs: [x], mtu: []}]", "pools: [{name: [], prefix: {}}, 7]", "coolDown: [1]",
		"mtu: 1.5", "namespacePools: [a]",
	} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "agent.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Read(pflag.NewFlagSet("", pflag.ContinueOnError), path, nil)
		if err == nil && c.Validate() != nil {
			t.Errorf("%q was accepted: %v", text, c.Validate())
		}
		if err != nil && ofGo.MatchString(strings.ReplaceAll(err.Error(), string(text), "")) && !ofGo.Match(text) {
			t.Errorf("%q: the error speaks Go: %v", text, err)
		}
	})
}

// FuzzPrefixes reads any list of prefixes. Set accepts the result of String.
func FuzzPrefixes(f *testing.F) {
	f.Add("10.0.0.0/8, fd00::/8")
	f.Add("10.0.0.1/8")
	f.Add("::ffff:10.0.0.0/104,")
	f.Fuzz(func(t *testing.T, text string) {
		var p, again Prefixes
		if p.Set(text) != nil {
			return
		}
		if err := again.Set(p.String()); err != nil || again.String() != p.String() {
			t.Errorf("%q is %s, and then %s (%v)", text, &p, &again, err)
		}
		for _, prefix := range p {
			if prefix != prefix.Masked() || !prefix.IsValid() || prefix.Addr() == (netip.Addr{}) {
				t.Errorf("%q has %v", text, prefix)
			}
		}
	})
}
