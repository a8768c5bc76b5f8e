package secrets_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// scene is a node with all output of its programs so far.
type scene struct {
	*testing.T
	markers markers
	node    *node.Node
	home    string // path of its network namespace
	outside string // directory of external configuration
	log     string // file with the log of weft-cni
	pod     *node.Pod
	vnf     kubelettest.Container // the pod's, with a memif
	output  strings.Builder
}

func newScene(t *testing.T) *scene {
	t.Helper()
	n, err := node.New(programs.Build(t), node.Options{Verify: true, Memifs: 1})
	must.Succeed(t, err)
	s := &scene{
		T:       t,
		markers: markers{},
		node:    n,
		home:    filepath.Join(n.Dir, "home"),
		outside: t.TempDir(),
		log:     filepath.Join(n.Dir, "cni.log"),
	}
	must.Succeed(t, os.Chmod(s.outside, 0o755))
	must.Succeed(t, netns.Make(s.home))
	s.pod, err = n.NewPod("a")
	must.Succeed(t, err)
	s.pod.Namespace = "shop"
	for where, name := range environment {
		t.Setenv(name, s.markers.add(where))
	}
	t.Cleanup(func() {
		if err := errors.Join(n.StopAgent(), netns.Remove(s.home), n.Close()); err != nil {
			t.Errorf("remove the node: %v", err)
		}
	})
	return s
}

func (s *scene) start() {
	s.Helper()
	must.Succeed(s.T, netns.Do(s.home, func() error {
		return s.node.StartAgent(s.Context(), "--log-level=debug", "--external-config", s.outside, "--gc-grace=0s")
	}))
}

// input is the input of one call of weft-cni.
type input struct {
	conf, runtime map[string]any
	annotations   map[string]string
	args          []string // CNI_ARGS
	environ       []string
	raw           string // stdin; "" = from the other fields
}

// wanted are the extra interfaces of the pod.
var wanted = "x0/" + dataplane.Tap() + ",m0/memif"

// input returns the minimal input of a runtime.
func (s *scene) input() *input {
	return &input{
		conf: map[string]any{
			"cniVersion": "1.1.0", "name": "weft", "type": "weft-cni", "socket": s.node.Socket(),
			"deleteQueue": filepath.Join(s.node.State(), "delete-queue"), "logFile": s.log, "logLevel": "debug",
		},
		runtime:     map[string]any{},
		annotations: map[string]string{"contivpp.io/custom-if": wanted},
		args:        []string{"IgnoreUnknown=1", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=a"},
	}
}

// stdin returns the configuration as a runtime writes it.
func (in *input) stdin() ([]byte, error) {
	if in.raw != "" {
		return []byte(in.raw), nil
	}
	conf := maps.Clone(in.conf)
	if _, given := conf["runtimeConfig"]; !given {
		in.runtime["io.kubernetes.cri.pod-annotations"] = in.annotations
		conf["runtimeConfig"] = in.runtime
	}
	return json.Marshal(conf)
}

// call runs weft-cni, records its output, and returns stdout and whether it succeeded.
func (s *scene) call(verb string, in *input) (out []byte, ok bool) {
	s.Helper()
	stdin, err := in.stdin()
	must.Succeed(s.T, err)
	var stderr bytes.Buffer
	cmd := exec.CommandContext(s.Context(), s.node.Program("weft-cni"))
	cmd.Env = append(append(os.Environ(), in.environ...), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+s.pod.ContainerID,
		"CNI_IFNAME=eth0",
		"CNI_NETNS="+s.pod.Netns, "CNI_PATH="+filepath.Dir(cmd.Path), "CNI_ARGS="+strings.Join(in.args, ";"))
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Stderr = &stderr
	out, err = cmd.Output()
	fmt.Fprintf(&s.output, "%s\n%s\n%s\n", verb, out, &stderr)
	return out, err == nil
}

// succeeds runs weft-cni, which must succeed.
func (s *scene) succeeds(verb string, in *input) []byte {
	s.Helper()
	out, ok := s.call(verb, in)
	if !ok {
		s.Fatalf("%s: %s", verb, out)
	}
	return out
}

// weftctl runs weftctl and records its output; an error is allowed.
func (s *scene) weftctl(args ...string) string {
	out, err := s.node.Weftctl(s.Context(), args...)
	fmt.Fprintf(&s.output, "weftctl %q\n%s\n%v\n", args, out, err)
	return out
}

// breakPod changes the MTU of the pod's main interface and the secret of its memif, so that CHECK finds drift.
func (s *scene) breakPod() {
	s.Helper()
	must.Succeed(s.T,
		os.WriteFile(s.inDirectory(memif.SecretFile), []byte(s.markers.add("another secret of a memif")), 0o400))
	must.Succeed(s.T, netns.Do(s.pod.Netns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(link, 9000)
	}))
}

// see searches the output so far, and each place of the list.
func (s *scene) see(when string, places ...place) {
	s.Helper()
	output := place{
		name:  "the programs' output",
		proof: "weftctl",
		read:  func() (string, error) { return s.output.String(), nil },
	}
	for _, p := range append(places, output) {
		text, err := p.read()
		switch {
		case err != nil:
			s.Errorf("%s: %s: %v", when, p.name, err)
		case !strings.Contains(text, p.proof):
			s.Errorf("%s: %s lacks %q, so its search proves nothing: %s", when, p.name, p.proof, text)
		}
		for _, where := range s.markers.in(text) {
			if slices.Contains(p.kept, where) {
				continue
			}
			s.Errorf("%s: %s has the secret of %s:\n%s", when, p.name, where,
				linesWith(text, s.markers[where][:enough]))
		}
	}
}

// linesWith returns the lines that contain a text.
func linesWith(text, part string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}
