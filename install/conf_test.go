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

func TestTheConfigurationIsWhatTheDocumentationShows(t *testing.T) {
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

// speaking is a plugin of others.
func speaking(versions ...string) string {
	raw, _ := json.Marshal(map[string]any{"cniVersion": "1.0.0", "supportedVersions": versions}) // of strings, which have a text
	return "#!/bin/sh\ncat >/dev/null\necho '" + string(raw) + "'\n"
}

func TestPluginsBehindWeftLimitItsVersions(t *testing.T) {
	tests := []struct {
		name            string
		portmap, said   string
		chain, versions []string
	}{
		{"none is there", "", "there is none", []string{"weft-cni"}, []string{"0.4.0", "1.0.0", "1.1.0"}},
		{"one that speaks all", speaking("0.4.0", "1.0.0", "1.1.0"), "", []string{"weft-cni", "portmap"}, []string{"0.4.0", "1.0.0", "1.1.0"}},
		{"an older one", speaking("0.3.1", "0.4.0", "1.0.0"), "will not ask for STATUS", []string{"weft-cni", "portmap"}, []string{"0.4.0", "1.0.0"}},
		{"one of another time", speaking("0.2.0"), "speaks none of the versions", []string{"weft-cni"}, []string{"0.4.0", "1.0.0", "1.1.0"}},
		{"a broken one", "#!/bin/sh\nexit 1\n", "does not answer", []string{"weft-cni"}, []string{"0.4.0", "1.0.0", "1.1.0"}},
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
			if !slices.Equal(chain, tt.chain) || !slices.Equal(got.CNIVersions, tt.versions) || got.CNIVersion != "1.0.0" {
				t.Errorf("chain %v, versions %v, single %s", chain, got.CNIVersions, got.CNIVersion)
			}
			if tt.said == "" != (n.log.String() == "" || !strings.Contains(n.log.String(), "WARN")) || !strings.Contains(n.log.String(), tt.said) {
				t.Errorf("log, which should say %q:\n%s", tt.said, n.log.String())
			}
		})
	}
}

// The runtime's own library judges what is offered.
func TestEachRuntimeFindsAVersionOfTheOffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		versions := rapid.SliceOfNDistinct(rapid.SampledFrom(spoken), 1, len(spoken), rapid.ID).Draw(t, "versions")
		single, all := offer(versions)
		if !slices.Contains(versions, single) || len(versions) > 1 && len(all) != len(versions) {
			t.Fatalf("of %v: %s, %v", versions, single, all)
		}
		raw, err := render(list{CNIVersion: single, CNIVersions: all, Name: network, Plugins: []any{companion{Type: program}}})
		if err != nil {
			t.Fatal(err)
		}
		conf, err := libcni.ConfListFromBytes(raw)
		if err != nil {
			t.Fatalf("%v is refused: %v", versions, err)
		}
		if best := slices.Max(versions); conf.CNIVersion != best {
			t.Fatalf("of %v the runtime takes %s", versions, conf.CNIVersion)
		}
	})
}

func TestWhatIsWrittenElsewhereIsShown(t *testing.T) {
	tests := []struct{ mode, says string }{
		{Chained, "--extend FILE"},
		{Delegate, "NetworkAttachmentDefinition"},
	}
	for _, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			n := newNode(t) // no agent: nothing is written that needs one
			n.install(func(o *Options) { o.Mode = tt.mode })
			if n.entries("net.d") != "" || !n.has("bin/weft-cni") {
				t.Errorf("net.d: %q, bin: %q", n.entries("net.d"), n.entries("bin"))
			}
			heading, shown, _ := strings.Cut(n.out.String(), "\n")
			if !strings.Contains(heading, tt.says) || !json.Valid([]byte(shown)) || !strings.Contains(shown, `"mode": "`+tt.mode+`"`) {
				t.Errorf("shown:\n%s", n.out.String())
			}
		})
	}
}

func TestConfigurationsOfOthersAreNamed(t *testing.T) {
	const bridge = `{"cniVersion":"1.0.0","name":"b","plugins":[{"type":"bridge"}]}`
	tests := []struct {
		name, file, content, said string
	}{
		{"one that sorts before", "05-other.conflist", bridge, "the runtime takes another configuration"},
		{"one that sorts after", "99-other.conflist", bridge, ""},
		{"a file that no runtime reads", "05-other.bak", bridge, ""},
		{"Weft's under another name", "20-weft.conflist", `{"name":"weft","plugins":[{"type":"weft-cni"}]}`, "Weft's too"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, cnitest.Serve)
			path := n.write("net.d/"+tt.file, tt.content)
			n.install()
			if strings.Contains(n.log.String(), path) != (tt.said != "") || !strings.Contains(n.log.String(), tt.said) {
				t.Errorf("log, which should say %q:\n%s", tt.said, n.log.String())
			}
			if n.read("net.d/"+tt.file) != tt.content {
				t.Error("what is others' was changed")
			}
		})
	}
}
