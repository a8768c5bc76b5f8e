package install

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/cni/cnitest"
)

func TestThePrimaryConfigurationAsDocumented(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.install(func(o *Options) { o.Behind = nil })
	want := strings.NewReplacer("SOCKET", n.path("run/agent.sock"), "QUEUE", n.path("queue")).Replace(`{
  "cniVersion": "1.0.0",
  "cniVersions": [
    "0.4.0",
    "1.0.0",
    "1.1.0"
  ],
  "name": "weft",
  "plugins": [
    {
      "type": "weft-cni",
      "mode": "primary",
      "socket": "SOCKET",
      "deleteQueue": "QUEUE",
      "capabilities": {
        "deviceID": true,
        "io.kubernetes.cri.pod-annotations": true,
        "ips": true,
        "mac": true
      }
    }
  ]
}
`)
	if got := n.read("net.d/10-weft.conflist"); got != want {
		t.Errorf("written:\n%s\nwant:\n%s", got, want)
	}
}

// supporting returns a plugin that supports the CNI versions.
func supporting(versions ...string) string {
	raw, _ := json.Marshal(map[string]any{"cniVersion": "1.0.0", "supportedVersions": versions}) // strings have JSON
	return "#!/bin/sh\ncat >/dev/null\necho '" + string(raw) + "'\n"
}

func TestPluginsAfterWeftLimitItsVersions(t *testing.T) {
	tests := []struct {
		name            string
		portmap, logged string
		chain, versions []string
	}{
		{"not installed", "", "it is not installed", []string{"weft-cni"}, []string{"0.4.0", "1.0.0", "1.1.0"}},
		{
			"all versions", supporting("0.4.0", "1.0.0", "1.1.0"), "", []string{"weft-cni", "portmap"},
			[]string{"0.4.0", "1.0.0", "1.1.0"},
		},
		{
			"older versions", supporting("0.3.1", "0.4.0", "1.0.0"), "will not call STATUS",
			[]string{"weft-cni", "portmap"}, []string{"0.4.0", "1.0.0"},
		},
		{
			"no common version", supporting("0.2.0"), "supports none of the CNI versions", []string{"weft-cni"},
			[]string{"0.4.0", "1.0.0", "1.1.0"},
		},
		{
			"VERSION fails", "#!/bin/sh\nexit 1\n", "get its CNI versions", []string{"weft-cni"},
			[]string{"0.4.0", "1.0.0", "1.1.0"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, cnitest.Serve)
			if tt.portmap != "" {
				n.write("bin/portmap", tt.portmap)
			}
			n.install()
			var got list
			if err := json.Unmarshal([]byte(n.read("net.d/10-weft.conflist")), &got); err != nil {
				t.Fatal(err)
			}
			conf, err := libcni.ConfListFromBytes([]byte(n.read("net.d/10-weft.conflist")))
			if err != nil {
				t.Fatal(err)
			}
			var chain []string
			for _, p := range conf.Plugins {
				chain = append(chain, p.Network.Type)
			}
			if !slices.Equal(chain, tt.chain) || !slices.Equal(got.CNIVersions, tt.versions) ||
				got.CNIVersion != "1.0.0" {
				t.Errorf("chain %v, versions %v, single %s", chain, got.CNIVersions, got.CNIVersion)
			}
			if tt.logged == "" != (n.log.String() == "" || !strings.Contains(n.log.String(), "WARN")) ||
				!strings.Contains(n.log.String(), tt.logged) {
				t.Errorf("log without %q:\n%s", tt.logged, n.log.String())
			}
		})
	}
}

// libcni parses the offered versions.
func TestOfferIsValidForAllRuntimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		versions := rapid.SliceOfNDistinct(rapid.SampledFrom(supportedVersions), 1, len(supportedVersions),
			rapid.ID).Draw(t, "versions")
		single, all := offer(versions)
		if !slices.Contains(versions, single) || len(versions) > 1 && len(all) != len(versions) {
			t.Fatalf("offer of %v: %s, %v", versions, single, all)
		}
		raw, err := render(list{
			CNIVersion:  single,
			CNIVersions: all,
			Name:        network,
			Plugins:     []any{chainedPlugin{Type: program}},
		})
		if err != nil {
			t.Fatal(err)
		}
		conf, err := libcni.ConfListFromBytes(raw)
		if err != nil {
			t.Fatalf("%v is rejected: %v", versions, err)
		}
		if best := slices.Max(versions); conf.CNIVersion != best {
			t.Fatalf("of %v the runtime selects %s", versions, conf.CNIVersion)
		}
	})
}

func TestTheObjectIsPrintedIfNoConfigurationIsWritten(t *testing.T) {
	tests := []struct{ mode, heading string }{
		{Chained, "--extend FILE"},
		{Delegate, "NetworkAttachmentDefinition"},
	}
	for _, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			n := newNode(t) // without an agent, because no configuration is written
			n.install(func(o *Options) { o.Mode = tt.mode })
			if n.entries("net.d") != "" || !n.has("bin/weft-cni") {
				t.Errorf("net.d: %q, bin: %q", n.entries("net.d"), n.entries("bin"))
			}
			heading, object, _ := strings.Cut(n.out.String(), "\n")
			if !strings.Contains(heading, tt.heading) || !json.Valid([]byte(object)) ||
				!strings.Contains(object, `"mode": "`+tt.mode+`"`) {
				t.Errorf("output:\n%s", n.out.String())
			}
		})
	}
}

func TestOtherConfigurationsAreLogged(t *testing.T) {
	const bridge = `{"cniVersion":"1.0.0","name":"b","plugins":[{"type":"bridge"}]}`
	tests := []struct {
		name, file, content, logged string
	}{
		{"sorts before Weft's", "05-other.conflist", bridge, "runtimes use another configuration"},
		{"sorts after Weft's", "99-other.conflist", bridge, ""},
		{"not a configuration", "05-other.bak", bridge, ""},
		{
			"Weft's with another name", "20-weft.conflist", `{"name":"weft","plugins":[{"type":"weft-cni"}]}`,
			"also calls Weft",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, cnitest.Serve)
			path := n.write("net.d/"+tt.file, tt.content)
			n.install()
			if strings.Contains(n.log.String(), path) != (tt.logged != "") ||
				!strings.Contains(n.log.String(), tt.logged) {
				t.Errorf("log without %q:\n%s", tt.logged, n.log.String())
			}
			if n.read("net.d/"+tt.file) != tt.content {
				t.Error("the foreign file was changed")
			}
		})
	}
}

// FuzzVersions parses arbitrary answers to VERSION. Common versions are Weft's, and errors are short.
func FuzzVersions(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}`))
	f.Add([]byte(`{"supportedVersions":["","9"]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		ours := []string{"1.1.0", "0.4.0", "1.0.0"}
		common, err := intersect(ours, versionsIn(answer))
		if err != nil {
			if len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		single, all := offer(common)
		if len(all) == 0 {
			all = []string{single}
		}
		for _, v := range all {
			if !slices.Contains(ours, v) || !slices.Contains(all, single) {
				t.Errorf("%q offers %q of %q", answer, single, all)
			}
		}
	})
}
