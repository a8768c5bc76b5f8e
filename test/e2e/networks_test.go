package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/weft"
)

// needWeft skips a test of features that only Weft has.
func needWeft(t *testing.T) {
	t.Helper()
	if need(t).CNI().Name() != "weft" {
		t.Skip("only Weft has this: set " + cniVariable + "=weft")
	}
}

// twoNetworks has a network of each type; a pod gets an interface on each.
const twoNetworks = `
apiVersion: contivpp.io/v1
kind: CustomNetwork
metadata: {name: e2e-blue}
spec: {type: L2, cidrs: [10.51.0.0/22, "fd00:51::/112"], vni: 5001}
---
apiVersion: contivpp.io/v1
kind: CustomNetwork
metadata: {name: e2e-red}
spec: {type: L3, cidrs: [10.52.0.0/22, "fd00:52::/112"], vni: 5002}
`

// apply applies objects that outlive the pods of the space: a network exists until its last pod is gone.
func (s *space) apply(manifest string) {
	s.t.Helper()
	_, err := s.c.Kubectl(s.t.Context(), []byte(manifest), "apply", "-f", "-")
	s.must(err)
	s.applied = append(s.applied, manifest)
}

// createWith makes a pod with an annotation for extra interfaces.
func (s *space) createWith(name, node, interfaces string, change func(*corev1.PodSpec)) {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{"app": name},
			Annotations: map[string]string{"contivpp.io/custom-if": weft.CustomInterfaces(interfaces)},
		},
		Spec: podSpec(node),
	}
	if change != nil {
		change(&pod.Spec)
	}
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(s.t.Context(), pod, metav1.CreateOptions{})
	s.must(err)
}

// on returns a pod's addresses on an interface, IPv4 first.
func (s *space) on(pod *corev1.Pod, link string) []netip.Addr {
	s.t.Helper()
	return s.addressesOf(s.exec(pod, "links"), link)
}

// addressesOf finds the addresses of an interface in the output of e2e-pod links, IPv4 first.
func (s *space) addressesOf(links, link string) (addresses []netip.Addr) {
	s.t.Helper()
	for line := range strings.Lines(links) {
		words := strings.Fields(line)
		if len(words) < 5 || words[0] != link {
			continue
		}
		if p, err := netip.ParsePrefix(words[len(words)-1]); err == nil && !p.Addr().IsLinkLocalUnicast() {
			addresses = append(addresses, p.Addr())
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	if len(addresses) != 2 {
		s.t.Fatalf("%s has %v, want one address of each family, in %s", link, addresses, links)
	}
	return addresses
}

// Many pods on two nodes, each with a tap on the default network, one on an L2 network and a veth on an L3 network: as
// soon as they are ready, each reaches the next, which is on the other node, on all networks.
func TestPodsReachEachOtherOnEveryNetwork(t *testing.T) {
	const pings = "100"
	pods := weft.Crowd(20, 6) // with four interfaces each
	needWeft(t)
	s := newSpace(t)
	s.apply(twoNetworks)
	name := func(i int) string { return fmt.Sprintf("p%02d", i%pods) }
	for i := range pods {
		s.createWith(name(i), s.c.Nodes[i%2].Name, "more/tap, blue/tap/e2e-blue, red/veth/e2e-red", nil)
	}
	for i := range pods {
		from := s.ready(name(i))
		to := s.ready(name(i + 1))
		links := s.exec(to, "links")
		var all []string
		for _, target := range slices.Concat(s.addresses(to), s.addressesOf(links, "more"),
			s.addressesOf(links, "blue"), s.addressesOf(links, "red")) {
			all = append(all, "ping", target.String(), pings, "then")
		}
		s.exec(from, all[:len(all)-1]...)
	}
}

// A memif is reachable from the other node, and a device of kubelet. The agent releases it a minute after the pod,
// unless it restarts; later tests check that nothing is left over.
func TestMemifIsReachableFromTheOtherNode(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	s.apply(twoNetworks)
	const kind = corev1.ResourceName("contivpp.io/memif")
	node, err := s.c.Client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	s.must(err)
	if n := node.Status.Capacity[kind]; n.Value() != 100 {
		t.Errorf("n1 has %s of %s, want 100", n.String(), kind)
	}
	s.createWith("responder", "n1", "m1/memif/e2e-blue", func(spec *corev1.PodSpec) {
		spec.Containers[0].Name = "responder"
		spec.Containers[0].Image = weft.Image
		spec.Containers[0].Command = []string{"/usr/local/bin/icmpresponder"}
		spec.Containers[0].Args = nil
		spec.Containers[0].Resources.Limits = corev1.ResourceList{kind: resource.MustParse("1")}
	})
	s.createWith("client", "n2", "blue/tap/e2e-blue", nil)
	s.ready("responder")
	client := s.ready("client")
	for _, address := range s.memif("n1", "m1") {
		s.must(cluster.Eventually(t.Context(), "client reaches "+address.String(), func(ctx context.Context) error {
			_, err := s.c.Exec(ctx, client, "ping", address.String(), "100")
			return err
		}))
	}
	n := s.c.Node("n1")
	s.must(errors.Join(n.Kubelet.Restart(t.Context()), n.AwaitKubelet(t.Context())))
	began := time.Now()
	s.must(n.AwaitDevices(t.Context(), string(kind)))
	t.Logf("kubelet has memifs %s after its restart", round(time.Since(began)))
	s.createWith("after", "n1", "m1/memif/e2e-blue", func(spec *corev1.PodSpec) {
		spec.Containers[0].Resources.Limits = corev1.ResourceList{kind: resource.MustParse("1")}
	})
	s.ready("after")
	t.Logf("a pod with a memif is ready after %s", round(time.Since(began)))
	s.createWith("greedy", "n1", "m1/memif/e2e-blue", func(spec *corev1.PodSpec) {
		spec.Containers[0].Resources.Limits = corev1.ResourceList{kind: resource.MustParse("99")}
	})
	s.must(cluster.Eventually(t.Context(), "a pod that needs more devices than are free is not scheduled",
		func(ctx context.Context) error {
			if output := s.lastEvent(ctx, "greedy"); !strings.Contains(output, "Insufficient "+string(kind)) {
				return errors.New(output)
			}
			return nil
		}))
}

// connectedLine is the first line of pingcounter, with an address of each family.
var connectedLine = regexp.MustCompile(`m1: connected, addresses \[(\S+)/\d+ (\S+)/\d+\]`)

// docs/functions.md starts from this program.
func TestPingcounterAnswersAndPrintsInAPod(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	s.apply(twoNetworks)
	s.createWith("function", "n1", "m1/memif/e2e-blue", func(spec *corev1.PodSpec) {
		spec.Containers[0].Image = weft.Image
		spec.Containers[0].Command = []string{"/usr/local/bin/pingcounter"}
		spec.Containers[0].Args = nil
		spec.Containers[0].Resources.Limits = corev1.ResourceList{"contivpp.io/memif": resource.MustParse("1")}
	})
	s.createWith("client", "n2", "blue/tap/e2e-blue", nil)
	s.ready("function")
	client := s.ready("client")
	printed := func(pattern *regexp.Regexp) (found []string) {
		s.must(cluster.Eventually(t.Context(), "the program prints "+pattern.String(), func(ctx context.Context) error {
			text, err := s.c.Client.CoreV1().Pods(s.name).GetLogs("function", &corev1.PodLogOptions{}).DoRaw(ctx)
			if found = pattern.FindStringSubmatch(string(text)); err == nil && found == nil {
				err = fmt.Errorf("it printed %q", text)
			}
			return err
		}))
		return found
	}
	for _, address := range printed(connectedLine)[1:] {
		s.must(cluster.Eventually(t.Context(), "client reaches "+address, func(ctx context.Context) error {
			_, err := s.c.Exec(ctx, client, "ping", address, "3")
			return err
		}))
	}
	printed(regexp.MustCompile(`m1: reply 6, \d+ bytes`))
}

// memif returns the addresses of a memif from the file in the pod.
func (s *space) memif(node, name string) (addresses []netip.Addr) {
	s.t.Helper()
	s.must(s.c.Node(node).Do(func() error {
		files, err := filepath.Glob("/run/weft/memif/*/interfaces.json")
		if err != nil || len(files) != 1 {
			return errors.Join(err, fmt.Errorf("files of memifs: %v", files))
		}
		raw, err := os.ReadFile(files[0])
		if err != nil {
			return err
		}
		var output struct {
			Interfaces []struct {
				Name      string         `json:"name"`
				Addresses []netip.Prefix `json:"addresses"`
			} `json:"interfaces"`
		}
		if err := json.Unmarshal(raw, &output); err != nil {
			return err
		}
		for _, i := range output.Interfaces {
			for _, p := range i.Addresses {
				if i.Name == name {
					addresses = append(addresses, p.Addr())
				}
			}
		}
		return nil
	}))
	if len(addresses) != 2 {
		s.t.Fatalf("%s has the addresses %v, want one of each family", name, addresses)
	}
	return addresses
}
