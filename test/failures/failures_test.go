// Package failures_test prepares failures on a node with the real programs, and tests that weftctl names the cause in
// words.
package failures_test

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
	"github.com/weftnet/weft/test/refuse"
)

func TestMain(m *testing.M) { netnstest.Main(m, programs.Keep()) }

// timeout is the timeout until weftctl names a cause.
const timeout = time.Minute

// failure is one row: a prepared failure, the command of an operator, and words that its output must contain.
type failure struct {
	name    string
	options node.Options
	prepare func(s *scene, broken bool) // without broken it does the same without the failure
	command string
	words   []string
}

// failures are the prepared failures.
var failures = []failure{
	{
		name:    "pool exhausted",
		options: node.Options{Pools: []node.Pool{{Name: "small", Prefix: netip.MustParsePrefix("10.1.0.0/29")}}},
		prepare: exhaustPool,
		command: "pod demo/last",
		words:   []string{"failed", "pool exhausted", "pool small", "delete pods"},
	},
	{
		name: "device missing", options: node.Options{Memifs: 2}, prepare: omitDevice,
		command: "pod demo/a", words: []string{"failed", "contivpp.io/memif", "container"},
	},
	{
		name: "dataplane refused", prepare: refuseInterface,
		command: "pod demo/a", words: []string{"failed", "af_packet_create_v3", "(-1)"},
	},
	{
		name: "network namespace gone", prepare: removeNamespace,
		command: "pod demo/a", words: []string{"failed", "network namespace"},
	},
	{
		name: "annotation wrong", prepare: annotateWrongly,
		command: "pod demo/a", words: []string{"failed", "contivpp.io/custom-if", "bogus"},
	},
	{
		name: "kubelet refused registration", options: node.Options{Memifs: 1}, prepare: refuseRegistration,
		command: "status", words: []string{"kubelet", "not registered", "resource name is reserved"},
	},
	{
		name: "memif secret wrong", options: node.Options{Memifs: 1}, prepare: guessSecret,
		command: "pod demo/a", words: []string{"peer", "not connected", "client refused: incorrect secret"},
	},
	{
		name: "quarantine", prepare: crashDataplane,
		command: "pod demo/a", words: []string{"quarantined", "weftctl quarantine release demo/a"},
	},
	{
		name: "API server away", prepare: disconnectServer,
		command: "status",
		words:   []string{"api-server", "the API server does not answer, the last view of the cluster is used"},
	},
	{
		name: "drift", prepare: removeAddress,
		command: "events", words: []string{"drift reported: linux.address/", "was missing"},
	},
}

func TestWeftctlNamesTheCauseOfEachFailure(t *testing.T) {
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			s := newScene(t, f.options)
			f.prepare(s, true)
			s.eventually(f.command, f.words)
		})
	}
}

// Without the failure no output has all words, so the other test can fail.
func TestWordsAreAbsentWithoutTheFailure(t *testing.T) {
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			s := newScene(t, f.options)
			f.prepare(s, false)
			if out := s.weftctl(f.command); lacking(out, f.words) == nil {
				t.Errorf("weftctl %s has %q without the failure:\n%s", f.command, f.words, out)
			}
		})
	}
}

// scene is a node with one runtime.
type scene struct {
	*testing.T
	*node.Node
	runtime *node.Runtime
	kills   chan struct{} // of the dataplane behind the proxy
}

func newScene(t *testing.T, o node.Options) *scene {
	t.Helper()
	netnstest.RequireTap(t)
	o.CoolDown = 100 * time.Millisecond
	o.PodInterface = "veth"
	o.Embedded = true
	s := &scene{T: t}
	s.use(o)
	return s
}

// use makes the node with the options. It replaces a node that has not started.
func (s *scene) use(o node.Options) {
	s.Helper()
	n, err := node.New(programs.Build(s.T), o)
	must.Succeed(s.T, err)
	s.Cleanup(func() {
		if s.Failed() {
			s.Log(n.LogTails(60))
		}
		if err := errors.Join(n.Close(), removeNodeLinks()); err != nil {
			s.Error(err)
		}
	})
	s.Node = n
	s.runtime, err = n.Runtime(io.Discard)
	must.Succeed(s.T, err)
}

// removeNodeLinks removes the node's own veths, which outlive the dataplane and would disturb the next test.
func removeNodeLinks() error {
	links, err := netlink.LinkList()
	for _, l := range links {
		if alias := l.Attrs().Alias; l.Type() == "veth" && (alias == "weft:host" || alias == "weft:vtep") {
			_ = netlink.LinkDel(l) // may be deleted with its peer
		}
	}
	return err
}

func (s *scene) start(flags ...string) {
	s.Helper()
	must.Succeed(s.T, s.StartAgent(s.Context(), flags...))
}

// pod makes a sandbox.
func (s *scene) pod(name, interfaces string) *node.Pod {
	s.Helper()
	p, err := s.NewPod(name)
	must.Succeed(s.T, err)
	if interfaces != "" {
		p.Annotations = map[string]string{"contivpp.io/custom-if": interfaces}
	}
	return p
}

// add executes ADD, which must fail if broken.
func (s *scene) add(p *node.Pod, broken bool) {
	s.Helper()
	if _, err := s.runtime.Add(s.Context(), p); (err != nil) != broken {
		s.Fatalf("ADD of %s: error %v, expected one: %t", p.Name, err, broken)
	}
}

// weftctl returns the output of a command; its errors are part of it.
func (s *scene) weftctl(command string) string {
	out, err := s.Weftctl(s.Context(), strings.Fields(command)...)
	if err != nil {
		out += err.Error()
	}
	return strings.Join(strings.Fields(out), " ") // without line breaks
}

// eventually runs a command until its output has all words.
func (s *scene) eventually(command string, words []string) {
	s.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	over := time.After(timeout)
	defer tick.Stop()
	for {
		out := s.weftctl(command)
		missing := lacking(out, words)
		if missing == nil {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			s.Fatalf("weftctl %s: %v in:\n%s", command, missing, out)
		}
	}
}

// lacking returns an error with the words that a text lacks.
func lacking(text string, words []string) error {
	var missing []string
	for _, w := range words {
		if !strings.Contains(text, w) {
			missing = append(missing, w)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("no %q", missing)
}

func exhaustPool(s *scene, broken bool) {
	s.start()
	if broken {
		for i := range 5 { // a pool of eight addresses has five for pods
			s.add(s.pod(fmt.Sprint("p", i), ""), false)
		}
	}
	s.add(s.pod("last", ""), broken)
}

func omitDevice(s *scene, broken bool) {
	s.start()
	p := s.pod("a", "m0/memif, m1/memif")
	limit := 2
	if broken {
		limit = 1
	}
	_, err := s.Admit(s.Context(), p, kubelettest.Container{Name: "vnf", Limit: limit})
	must.Succeed(s.T, err)
	s.add(p, broken)
}

func refuseInterface(s *scene, broken bool) {
	proxy, flags := behindProxy(s)
	s.start(flags...)
	if broken {
		proxy.Refuse("af_packet_create_v3", -1, -1)
	}
	s.add(s.pod("a", ""), broken)
}

func removeNamespace(s *scene, broken bool) {
	s.start()
	p := s.pod("a", "")
	if broken {
		must.Succeed(s.T, p.Remove())
	}
	s.add(p, broken)
}

func annotateWrongly(s *scene, broken bool) {
	s.start()
	kind := "veth"
	if broken {
		kind = "bogus"
	}
	s.add(s.pod("a", "x0/"+kind), broken)
}

func refuseRegistration(s *scene, broken bool) {
	if broken {
		s.Kubelet.Refuse(status.Error(codes.InvalidArgument, "resource name is reserved"))
	}
	s.start()
}

func guessSecret(s *scene, broken bool) {
	s.start()
	p := s.pod("a", "m0/memif")
	containers, err := s.Admit(s.Context(), p, kubelettest.Container{Name: "vnf", Limit: 1})
	must.Succeed(s.T, err)
	s.add(p, false)
	if !broken {
		return
	}
	socket := filepath.Join(containers[0].Mounts[0].GetHostPath(), "memif.sock")
	if _, err := memif.Connect(s.Context(), memif.ClientConfig{Socket: socket, ID: 1, Secret: "a guess"}); err == nil {
		s.Fatal("a client with a wrong secret was accepted")
	}
}

func disconnectServer(s *scene, broken bool) {
	server := k8stest.New(s.T)
	server.Put("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: "node-uid"},
		Spec:       corev1.NodeSpec{PodCIDR: "10.8.0.0/24", PodCIDRs: []string{"10.8.0.0/24"}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.200.0.11"}},
		},
	})
	file := filepath.Join(s.TempDir(), "kubeconfig")
	must.Succeed(s.T, os.WriteFile(file, []byte(kubeconfig(server.Connection().Host)), 0o600))
	s.use(node.Options{CoolDown: time.Second, PodInterface: "veth", Embedded: true, Kubeconfig: file})
	s.start()
	if broken {
		server.Disconnect()
	}
}

// removeAddress removes an address of a pod, which the agent reports but does not repair.
func removeAddress(s *scene, broken bool) {
	s.start("--drift", "report", "--audit", "2s")
	p := s.pod("a", "")
	s.add(p, false)
	if !broken {
		return
	}
	must.Succeed(s.T, netns.Do(p.Netns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		return netlink.AddrDel(link, &addresses[0])
	}))
}

func kubeconfig(host string) string {
	return "apiVersion: v1\nkind: Config\ncurrent-context: it\ncontexts: [{name: it, context: {cluster: it, user: it}}]\n" +
		"users: [{name: it, user: {token: " + token + "}}]\nclusters: [{name: it, cluster: {server: " + host + "}}]\n"
}

// token is the agent's token for the API server.
const token = "Zq-token-of-the-agent-4711"

// behindProxy starts a dataplane behind a proxy, and returns the flags of an agent that uses it.
func behindProxy(s *scene) (*refuse.Proxy, []string) {
	s.Helper()
	d := supervise(s)
	path := filepath.Join(s.Dir, "proxy.sock")
	proxy, err := refuse.Listen(path, d.Socket())
	must.Succeed(s.T, err)
	s.Cleanup(func() {
		must.Succeed(s.T, s.StopAgent())
		_ = proxy.Close()
	})
	s.kills = d.kills
	return proxy, []string{
		"--dataplane-type", "vpp", "--dataplane-socket", path, "--dataplane-stats-socket", d.StatsSocket(),
	}
}
