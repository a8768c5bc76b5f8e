package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// lab is a node with the real programs.
type lab struct {
	*testing.T
	*node.Node
	started time.Time // of the running agent
}

func newLab(t *testing.T, dir string) *lab {
	t.Helper()
	return newLabWith(t, dir, node.Options{})
}

func newLabWith(t *testing.T, dir string, o node.Options) *lab {
	t.Helper()
	o.Verify = true
	return newPlainLab(t, dir, o)
}

// newPlainLab is a lab whose agent compares everything after each event only if the options say so.
func newPlainLab(t *testing.T, dir string, o node.Options) *lab {
	t.Helper()
	netnstest.Require(t)
	o.CoolDown = cmp.Or(o.CoolDown, 50*time.Millisecond)
	n, err := node.New(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{T: t, Node: n}
	t.Cleanup(func() {
		if log, err := os.ReadFile(n.AgentLog()); t.Failed() && err == nil {
			t.Logf("log of the agent:\n%s", log)
		}
		if err := errors.Join(n.Close(), removeNodeLinks()); err != nil {
			t.Error(err)
		}
	})
	l.start()
	return l
}

// removeNodeLinks removes the node's own veths: unlike taps they do not end with the dataplane, and they would disturb
// the next test.
func removeNodeLinks() error {
	links, err := netlink.LinkList()
	for _, l := range links {
		if l.Type() != "veth" || !slices.Contains([]string{"weft:host", "weft:vtep"}, l.Attrs().Alias) {
			continue
		}
		if gone := netlink.LinkDel(l); !errors.Is(gone, syscall.ENODEV) { // may be deleted with its peer
			err = errors.Join(err, gone)
		}
	}
	return err
}

func (l *lab) start() {
	l.Helper()
	l.started = time.Now()
	if err := l.StartAgent(l.Context()); err != nil {
		l.Fatal(err)
	}
}

// stateFile returns the path of the agent's state file.
func (l *lab) stateFile() string { return filepath.Join(l.State(), "state.db") }

func (l *lab) pod(name string) *node.Pod {
	l.Helper()
	p, err := l.NewPod(name)
	if err != nil {
		l.Fatal(err)
	}
	return p
}

// cni executes the plugin for a pod, as a runtime does, and returns its output, byte for byte. more is added to the
// configuration.
func (l *lab) cni(verb string, p *node.Pod, more map[string]any) []byte {
	l.Helper()
	cmd := exec.CommandContext(l.Context(), l.Program("weft-cni"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+p.ContainerID, "CNI_NETNS="+p.Netns,
		"CNI_IFNAME=eth0", "CNI_PATH=/", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME="+p.Name)
	cmd.Stdin = bytes.NewReader(l.netconf(more))
	out, err := cmd.Output()
	if err != nil {
		l.Fatalf("%s %s: %v: %s", verb, p.Name, err, out)
	}
	return out
}

func (l *lab) netconf(more map[string]any) []byte {
	l.Helper()
	raw, err := l.Conflist()
	if err != nil {
		l.Fatal(err)
	}
	var list struct {
		Name    string           `json:"name"`
		Plugins []map[string]any `json:"plugins"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		l.Fatal(err)
	}
	conf := list.Plugins[0]
	conf["cniVersion"] = "1.1.0"
	conf["name"] = list.Name
	for key, value := range more {
		conf[key] = value
	}
	if raw, err = json.Marshal(conf); err != nil {
		l.Fatal(err)
	}
	return []byte(dataplane.CustomInterfaces(string(raw)))
}

// check executes CHECK with the result of the ADD.
func (l *lab) check(p *node.Pod, result []byte) {
	l.Helper()
	l.cni("CHECK", p, map[string]any{"prevResult": json.RawMessage(result)})
}

// addresses returns the addresses of a result.
func (l *lab) addresses(result []byte) (addresses []netip.Addr) {
	l.Helper()
	var r struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(result, &r); err != nil || len(r.IPs) == 0 {
		l.Fatalf("result %s: %v", result, err)
	}
	for _, ip := range r.IPs {
		addresses = append(addresses, ip.Address.Addr())
	}
	return addresses
}

func (l *lab) mustReach(from *node.Pod, to netip.Addr) {
	l.Helper()
	p, err := ping.Open(from.Netns, to)
	if err != nil {
		l.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	if _, err := p.Once(ctx, to, 1); err != nil {
		l.Errorf("from %s: %v", from.Name, err)
	}
}

// ctl runs weftctl with JSON output.
func (l *lab) ctl(reply any, args ...string) {
	l.Helper()
	text, err := l.Weftctl(l.Context(), append(args, "-o", "json")...)
	if err == nil {
		err = json.Unmarshal([]byte(text), reply)
	}
	if err != nil {
		l.Fatal(err)
	}
}

// resyncs returns the operations of all resyncs of the running agent.
func (l *lab) resyncs() (operations []string) {
	l.Helper()
	var reply struct {
		Transactions []struct {
			Origin string
			Start  time.Time
			Ops    []struct{ Ref, Verb string } `json:"operations"`
		}
	}
	l.ctl(&reply, "transactions")
	found := false
	for _, txn := range reply.Transactions {
		if txn.Origin != "resync" || txn.Start.Before(l.started) {
			continue
		}
		found = true
		for _, op := range txn.Ops {
			operations = append(operations, op.Verb+" "+op.Ref)
		}
	}
	if !found {
		l.Error("no resync")
	}
	return operations
}

// snapshot records everything that pods could leave behind in the dataplane, on the node, and in the leases.
func (l *lab) snapshot() leftovers.Snapshot {
	l.Helper()
	s, err := leftovers.Steady(l.Context(), leftovers.Places{
		Namespaces: map[string]string{"node": ""}, Agent: l.Socket(), Dataplane: l.DataplaneSocket(),
	}, time.Minute) // the kernel's work after a link is up takes some time
	if err != nil {
		l.Fatal(err)
	}
	return s
}

// logged returns the lines of the agent's log that contain words.
func (l *lab) logged(words string) (lines []string) {
	l.Helper()
	text, err := os.ReadFile(l.AgentLog())
	if err != nil {
		l.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return !strings.Contains(line, words)
	})
}

// await waits until a condition holds.
func (l *lab) await(holds func() bool, what string) {
	l.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	limit := time.After(30 * time.Second)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			events, _ := l.Weftctl(l.Context(), "events")
			objects, _ := l.Weftctl(l.Context(), "objects")
			l.Fatalf("timeout waiting for %s:\n%s\n%s", what, events, objects)
		}
	}
}
