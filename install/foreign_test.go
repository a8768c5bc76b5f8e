package install

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/weftnet/weft/cni/cnitest"
)

const bridgeList = `{"cniVersion":"1.0.0","name":"b","plugins":[{"type":"bridge"}]}`

func exclusive(o *Options) { o.Exclusive = true }

func TestExclusiveSetsForeignConfigurationsAsideUntilUninstall(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.write("net.d/05-first.conflist", bridgeList)
	n.write("net.d/99-last.conf", `{"cniVersion":"1.0.0","name":"c","type":"bridge"}`)
	n.write("net.d/00-meta.conf", `{"cniVersion":"1.0.0","name":"m","type":"multus"}`)
	n.write("net.d/readme.txt", "no configuration")
	for range 2 { // the second run changes nothing
		n.install(exclusive)
	}
	want := "00-meta.conf.weft-aside 05-first.conflist.weft-aside 10-weft.conflist 99-last.conf.weft-aside readme.txt"
	if got := n.entries("net.d"); got != want {
		t.Errorf("net.d: %s, want %s", got, want)
	}
	files, err := libcni.ConfFiles(n.path("net.d"), []string{".conf", ".conflist", ".json"})
	if err != nil || len(files) != 1 || files[0] != n.path("net.d/10-weft.conflist") {
		t.Errorf("the runtime reads %v (%v)", files, err)
	}
	n.write("net.d/99-last.conf", "new") // by its owner
	for range 2 {
		if err := n.uninstall(noPods); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := n.entries(
		"net.d"), "00-meta.conf 05-first.conflist 99-last.conf 99-last.conf.weft-aside readme.txt"; got != want {
		t.Errorf("net.d: %s, want %s", got, want)
	}
	if n.read("net.d/05-first.conflist") != bridgeList || n.read("net.d/99-last.conf") != "new" {
		t.Error("a restored file differs, or replaced a newer one")
	}
	for _, said := range []string{
		"restored " + n.path("net.d/05-first.conflist"), "left " + n.path("net.d/99-last.conf.weft-aside"),
	} {
		if !strings.Contains(n.out.String(), said) {
			t.Errorf("the output does not have %q:\n%s", said, n.out.String())
		}
	}
}

func TestForeignConfigurationsStayWithoutExclusive(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.write("net.d/05-first.conflist", bridgeList)
	n.install()
	if got := n.entries("net.d"); got != "05-first.conflist 10-weft.conflist" {
		t.Errorf("net.d: %s", got)
	}
}

func TestForeignConfigurationsStayUntilTheAgentIsReady(t *testing.T) {
	n := newNode(t, cnitest.Starting)
	n.write("net.d/05-first.conflist", bridgeList)
	if err := n.installer(shortWait, exclusive).run(t.Context()); err == nil {
		t.Error("installed without an agent")
	}
	if got := n.entries("net.d"); got != "05-first.conflist" {
		t.Errorf("net.d: %s", got)
	}
}

func TestConfigurationsThatCallWeftAreNotSetAside(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	path := n.write("net.d/20-weft.conflist", `{"name":"weft","plugins":[{"type":"weft-cni"}]}`)
	n.install(exclusive)
	if got := n.entries("net.d"); got != "10-weft.conflist 20-weft.conflist" ||
		!strings.Contains(n.log.String(), path) {
		t.Errorf("net.d: %s, log:\n%s", got, n.log.String())
	}
}

func TestWatchSetsARewrittenConfigurationAside(t *testing.T) {
	n := newNode(t, cnitest.Serve)
	n.watch(exclusive)
	n.watching()
	for i := range 3 {
		n.write("net.d/05-first.conflist", strconv.Itoa(i))
		n.eventually("the file is set aside", func() bool {
			now, err := os.ReadFile(n.path("net.d/05-first.conflist.weft-aside"))
			return err == nil && string(now) == strconv.Itoa(i) && !n.has("net.d/05-first.conflist")
		})
	}
}

func TestANodeKeepsAConfigurationIfTheInstallerIsKilled(t *testing.T) {
	for step, killed := 1, true; killed; step++ {
		t.Run(strconv.Itoa(step), func(t *testing.T) {
			n := newNode(t, cnitest.Serve)
			n.write("net.d/05-first.conflist", bridgeList)
			n.write("net.d/99-last.conflist", bridgeList)
			o := n.options()
			o.Exclusive = true
			killed = n.kill(victim{Options: o, Build: thisBuild, Step: step})
			if len(configurations(n.path("net.d"))) == 0 {
				t.Errorf("no configuration: %s", n.entries("net.d"))
			}
			n.install(exclusive)
			if got, want := n.entries(
				"net.d"), "05-first.conflist.weft-aside 10-weft.conflist 99-last.conflist.weft-aside"; got != want {
				t.Errorf("net.d: %s, want %s", got, want)
			}
		})
	}
}
