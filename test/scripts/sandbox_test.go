package scripts_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containernetworking/cni/libcni"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weftnet/weft/test/netns"
)

// sandbox is a pod's sandbox with the runtime's records of it.
type sandbox struct {
	name    string
	pod     string // several sandboxes may belong to one pod
	id      string // of the container
	path    string // of the network namespace
	removed bool   // the namespace was removed

	mu   sync.Mutex
	last []byte // the result of the last successful ADD
}

// sandboxCommand:
//
//	sandbox NAME [POD]   make a sandbox for the pod; without POD the pod's name is NAME
//	sandbox rm NAME      remove its network namespace, as a runtime does when a pod ends
//	sandbox hide         rename the directory of all network namespaces, as for an agent without a mount of /run/netns
//	sandbox show         undo that
//	sandbox gone NAME    wait until the kernel has freed the removed namespace (needs meddle NAME add witness)
//
// A sandbox that is made again is another namespace of the same container. The variable NAME_netns is its path.
func sandboxCommand(ts *testscript.TestScript, neg bool, args []string) {
	s := on(ts)
	switch {
	case len(args) == 2 && args[0] == "rm":
		b := s.sandbox(ts, args[1])
		ts.Check(netns.Remove(b.path))
		b.removed = true
	case len(args) == 1 && args[0] == "hide":
		ts.Check(os.Rename(s.node.Pods(), s.node.Pods()+".hidden"))
	case len(args) == 1 && args[0] == "show":
		ts.Check(os.Rename(s.node.Pods()+".hidden", s.node.Pods()))
	case len(args) == 2 && args[0] == "gone":
		check(ts, neg, s.awaitGone(s.sandbox(ts, args[1])))
	case len(args) == 1:
		ts.Check(s.makeSandbox(args[0], args[0]))
		ts.Setenv(args[0]+"_netns", s.sandboxes[args[0]].path)
	case len(args) == 2:
		ts.Check(s.makeSandbox(args[0], args[1]))
		ts.Setenv(args[0]+"_netns", s.sandboxes[args[0]].path)
	default:
		usage(ts, "sandbox NAME [POD] | sandbox rm NAME | sandbox hide | sandbox show | sandbox gone NAME")
	}
}

func (s *stage) sandbox(ts *testscript.TestScript, name string) *sandbox {
	b := s.sandboxes[name]
	if b == nil {
		ts.Fatalf("unknown sandbox %s", name)
	}
	return b
}

func (s *stage) makeSandbox(name, pod string) error {
	id := sha256.Sum256([]byte(name))
	b := &sandbox{name: name, pod: pod, id: hex.EncodeToString(id[:]), path: filepath.Join(s.node.Dir, "pods", name)}
	if err := netns.Make(b.path); err != nil {
		return err
	}
	s.sandboxes[name] = b
	return nil
}

// args are the sandbox's CNI_ARGS in Kubernetes.
func (b *sandbox) args() [][2]string {
	uid := sha256.Sum256([]byte("pod " + b.pod))
	return [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", b.pod},
		{"K8S_POD_INFRA_CONTAINER_ID", b.id}, {"K8S_POD_UID", hex.EncodeToString(uid[:16])},
	}
}

// environment is CNI_ARGS.
func (b *sandbox) environment() string {
	var pairs []string
	for _, a := range b.args() {
		pairs = append(pairs, a[0]+"="+a[1])
	}
	return strings.Join(pairs, ";")
}

// conf returns libcni's description of the sandbox.
func (b *sandbox) conf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: b.id, NetNS: b.path, IfName: "eth0", Args: b.args(),
		CapabilityArgs: map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{}},
	}
}

// result returns the result of the last successful ADD; nil = none.
func (b *sandbox) result() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// remember stores the result of an ADD.
func (b *sandbox) remember(result []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = bytes.Clone(result)
}

// addresses returns the addresses of the last ADD.
func (b *sandbox) addresses() ([]netip.Addr, error) {
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(b.result(), &result); err != nil {
		return nil, fmt.Errorf("sandbox %s has no result of an ADD: %w", b.name, err)
	}
	var addresses []netip.Addr
	for _, ip := range result.IPs {
		addresses = append(addresses, ip.Address.Addr())
	}
	return addresses, nil
}
