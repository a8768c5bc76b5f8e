package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// programs makes a directory of shell scripts with the programs' names.
func programs(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"weft-agent", "weft-cni", "weft-vswitch", "weftctl"} {
		if err := os.WriteFile(dir+"/"+name, []byte("#!/bin/sh\n"+scripts[name]), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func newNode(t *testing.T, scripts map[string]string) *Node {
	t.Helper()
	n, err := New(programs(t, scripts), Options{Verify: true, CoolDown: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func closeNode(t *testing.T, n *Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(n.Dir); !os.IsNotExist(err) {
		t.Errorf("the node's directory still exists: %v", err)
	}
}

func TestErrorOfMissingProgramsSaysMakeBuild(t *testing.T) {
	_, err := New(t.TempDir(), Options{})
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("error %v, want make build", err)
	}
}

func TestAgentConfigurationIsYAML(t *testing.T) {
	n := newNode(t, nil)
	defer closeNode(t, n)
	text, err := os.ReadFile(n.Config())
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Socket, CoolDown string
		Verify           bool
		Pools            []struct{ Name, Prefix string }
		Networks         []struct {
			Name, Type string
			CIDRs      []string
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Networks) != 0 || config.Socket != n.Socket() || config.CoolDown != "30s" || !config.Verify ||
		len(config.Pools) != 2 || config.Pools[1].Prefix != "fd00:10:1::/64" {
		t.Errorf("configuration %+v", config)
	}
}

func TestSetNetworksChangesTheConfiguration(t *testing.T) {
	n := newNode(t, nil)
	defer closeNode(t, n)
	blue := Network{Name: "blue", Type: "L2", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24")}}
	if err := n.SetNetworks([]Network{blue}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(n.Config())
	want := "networks:\n- antiSpoof: false\n  cidrs:\n  - 10.5.0.0/24\n  name: blue\n  type: L2\n"
	if err != nil || !strings.Contains(string(text), want) || !strings.Contains(string(text), n.Socket()) {
		t.Errorf("error %v, configuration\n%s", err, text)
	}
}

func TestConflistIsReadByLibcni(t *testing.T) {
	n := newNode(t, nil)
	defer closeNode(t, n)
	r, err := n.Runtime(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.list.Plugins) != 1 || r.list.Plugins[0].Network.Type != "weft-cni" || r.list.CNIVersion != "1.1.0" {
		t.Errorf("list %+v", r.list)
	}
}

func TestRuntimePassesKubernetesArguments(t *testing.T) {
	netnstest.Require(t)
	n := newNode(t, map[string]string{"weft-cni": `
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
ADD) echo '{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"s"},{"name":"x0","sandbox":"s"},{"name":"host"}],"ips":[{"address":"10.1.0.2/32","interface":0},{"address":"fd00::2/64","gateway":"fd00::1","interface":1}]}'; { env; cat; } >"$(dirname "$CNI_NETNS")/../asked" ;;
esac
`})
	defer closeNode(t, n)
	r, err := n.Runtime(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.NewPod("x")
	if err != nil {
		t.Fatal(err)
	}
	p.Namespace = "other"
	p.Annotations = map[string]string{"key": "value"}
	result, err := r.Add(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	links, err := Links(result)
	if len(links) != 2 {
		t.Fatalf("links %v, want the pod's links", links)
	}
	if got := fmt.Sprint(links[0].Addresses, links[0].Gateways, links[1].Addresses, links[1].Gateways,
		links[1].Bare()); err != nil ||
		got != "[10.1.0.2/32] [invalid IP] [fd00::2/64] [fd00::1] [fd00::2]" {
		t.Errorf("links %s, error %v", got, err)
	}
	asked, err := os.ReadFile(n.Dir + "/asked")
	if err != nil {
		t.Fatal(err)
	}
	socket, _ := json.Marshal(n.Socket())
	for _, want := range []string{
		"K8S_POD_NAME=x", "K8S_POD_NAMESPACE=other", "CNI_IFNAME=eth0", "CNI_NETNS=" + p.Netns,
		`"socket":` + string(socket), `"io.kubernetes.cri.pod-annotations":{"key":"value"}`,
	} {
		if !strings.Contains(string(asked), want) {
			t.Errorf("the plugin did not get %s:\n%s", want, asked)
		}
	}
	if err := r.Del(t.Context(), p); err != nil {
		t.Error(err)
	}
}

func TestAgentIsStartedKilledAndStopped(t *testing.T) {
	n := newNode(t, map[string]string{"weft-agent": `
case "$1" in
run) echo started; trap 'exit 0' TERM; touch "$(dirname "$3")/../run/up"; while :; do sleep 0.05; done ;;
health) test -e "$(dirname "$3")/up" ;;
esac
`})
	defer closeNode(t, n)
	for range 2 {
		if err := n.StartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		pid := n.AgentPID()
		if pid == 0 || !alive(pid) {
			t.Fatalf("the agent %d does not run", pid)
		}
		if err := n.KillAgent(); err != nil {
			t.Fatal(err)
		}
		if alive(pid) || n.AgentPID() != 0 {
			t.Error("the killed agent runs")
		}
	}
	if err := n.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestStartAgentFailsWhenTheAgentExits(t *testing.T) {
	n := newNode(t, map[string]string{"weft-agent": "exit 3"})
	defer closeNode(t, n)
	if err := n.StartAgent(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v, want the exit status", err)
	}
}
