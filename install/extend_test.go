package install

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/weftnet/weft/cni/cnitest"
)

const calico = `{
  "name": "k8s-pod-network", "cniVersion": "0.3.1", "vendor": {"kept": [1, 2.50, "<&>"]},
  "plugins": [
    {"type": "calico", "log_level": "info", "mtu": 1440, "ipam": {"type": "calico-ipam"}},
    {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}
  ]
}`

// decode returns the value of JSON text.
func decode(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func TestUninstallRestoresAnExtendedList(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	path := n.write("net.d/10-calico.conflist", calico)
	for range 2 { // the second run changes nothing
		n.install(chainedTo(path))
		conf, err := libcni.ConfListFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if last := conf.Plugins[len(conf.Plugins)-1].Network; len(conf.Plugins) != 3 || last.Type != "weft-cni" {
			t.Errorf("%d plugins, the last one is %s", len(conf.Plugins), last.Type)
		}
	}
	if got := n.entries("net.d"); got != "10-calico.conflist" {
		t.Errorf("net.d: %s", got)
	}
	o := n.options()
	o.Extend = path
	if err := Uninstall(t.Context(), o, noPods, &n.out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, calico), decode(t, n.read("net.d/10-calico.conflist"))); diff != "" {
		t.Errorf("the list differs (-before +after):\n%s", diff)
	}
	if n.entries("bin") != "" {
		t.Errorf("left: %s", n.entries("bin"))
	}
}

func TestAnExtendedListKeepsItsFileMode(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	path := n.write("net.d/10-calico.conflist", calico)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	n.install(chainedTo(path))
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
}

func TestALinkToAnExtendedListStaysALink(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	if err := os.MkdirAll(n.path("other"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.write("other/calico.json", calico)
	link := n.path("net.d/10-calico.conflist")
	if err := os.Symlink("../other/calico.json", link); err != nil {
		t.Fatal(err)
	}
	n.install(chainedTo(link))
	if target, err := os.Readlink(link); target != "../other/calico.json" {
		t.Errorf("the link became %q (%v)", target, err)
	}
	if !strings.Contains(n.read("other/calico.json"), "weft-cni") || n.entries("other") != "calico.json" {
		t.Errorf("%s has\n%s", n.entries("other"), n.read("other/calico.json"))
	}
	if dirs := n.installer(chainedTo(link)).dirs(); !slices.Contains(dirs, n.path("other")) {
		t.Errorf("the directory of the file is not watched: %v", dirs)
	}
	o := n.options()
	o.Extend = link
	if err := Uninstall(t.Context(), o, noPods, &n.out); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); target != "../other/calico.json" ||
		strings.Contains(n.read("other/calico.json"), "weft-cni") {
		t.Errorf("after the uninstall the link is %q (%v), the file\n%s", target, err, n.read("other/calico.json"))
	}
	if err := os.Remove(n.path("other/calico.json")); err != nil {
		t.Fatal(err)
	}
	err := n.installer(chainedTo(link), shortWait).run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is a link to ../other/calico.json, which does not exist here") {
		t.Errorf("a link without its file: %v", err)
	}
}

func TestInstallNamesInvalidLists(t *testing.T) {
	tests := []struct{ name, content, why string }{
		{"missing", "", "has not written it"},
		{"truncated", calico[:50], "not a CNI configuration list"},
		{"a plugin instead of a list", `{"name":"x","type":"bridge"}`, "the key plugins"},
		{"no name", `{"plugins":[{"type":"bridge"}]}`, "the key name"},
		{"no plugins", `{"name":"x","plugins":[]}`, "no plugin that Weft can follow"},
		{"Weft's own", `{"name":"weft","plugins":[{"type":"weft-cni"}]}`, "no plugin that Weft can follow"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, cnitest.Serve)
			path := n.path("net.d/10-x.conflist")
			if tt.content != "" {
				n.write("net.d/10-x.conflist", tt.content)
			}
			err := n.installer(chainedTo(path), shortWait).run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.why) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one with %q", err, tt.why)
			}
			if tt.content != "" && n.read("net.d/10-x.conflist") != tt.content {
				t.Error("the list was changed")
			}
		})
	}
}

func TestAStaleObjectIsReplacedAtTheEnd(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	stale := `{"name":"x","cniVersion":"1.0.0","plugins":[{"type":"bridge"},{"type":"weft-cni","mode":"chained","socket":"/old"},{"type":"portmap"}]}`
	path := n.write("net.d/10-x.conflist", stale)
	n.install(chainedTo(path))
	conf, err := libcni.ConfListFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var chain []string
	for _, p := range conf.Plugins {
		chain = append(chain, p.Network.Type)
	}
	if got := strings.Join(chain, " "); got != "bridge portmap weft-cni" ||
		strings.Contains(n.read("net.d/10-x.conflist"), "/old") {
		t.Errorf("chain %s:\n%s", got, n.read("net.d/10-x.conflist"))
	}
}

// FuzzForeignLists checks that the removal of Weft's object restores the list.
func FuzzForeignLists(f *testing.F) {
	f.Add([]byte(calico))
	f.Add([]byte(`{"name":"x","plugins":[{"type":"bridge"},{"type":"weft-cni"},7,null]}`))
	ours := object{Type: program, Mode: Chained, Socket: "/s", DeleteQueue: "/q"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, with, err := withWeft(raw, ours)
		if err != nil {
			return
		}
		if _, twice, err := withWeft(with, ours); err != nil || string(twice) != string(with) {
			t.Fatalf("a second call changed the list (%v):\n%s\n%s", err, with, twice)
		}
		without, changed, err := withoutWeft(with)
		if err != nil || !changed {
			t.Fatalf("cannot be restored: %v", err)
		}
		if had, _, err := withoutWeft(raw); err != nil ||
			cmp.Diff(decode(t, string(had)), decode(t, string(without))) != "" {
			t.Fatalf("the restored list differs (%v):\n%s\n%s", err, raw, without)
		}
	})
}
