package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/weft"
)

// examples is the directory of the examples. examples/README.md explains their lines "# check:".
const examples = "../../examples"

// example is a file of it.
type example struct {
	cluster []unstructured.Unstructured // objects without a namespace
	objects []unstructured.Unstructured // the others
	checks  []check
}

// check is a line "# check:".
type check struct {
	line     string
	refused  bool   // "no ping"
	from     string // the pod that pings; "" if the line is about an address of an interface
	link, of string // interface of a pod
	address  string
}

var (
	checkLine = regexp.MustCompile(`(?m)^# check.*$`)
	pingLink  = regexp.MustCompile(`^# check: (no )?ping (\S+) of (\S+) from (\S+)$`)
	pingHost  = regexp.MustCompile(`^# check: (no )?ping (\S+) from (\S+)$`)
	hasLine   = regexp.MustCompile(`^# check: (\S+) of (\S+) has (\S+)$`)
)

func parseCheck(line string) (check, error) {
	if m := pingLink.FindStringSubmatch(line); m != nil {
		return check{line: line, refused: m[1] != "", link: m[2], of: m[3], from: m[4]}, nil
	}
	if m := pingHost.FindStringSubmatch(line); m != nil {
		return check{line: line, refused: m[1] != "", address: m[2], from: m[3]}, nil
	}
	if m := hasLine.FindStringSubmatch(line); m != nil {
		return check{line: line, link: m[1], of: m[2], address: m[3]}, nil
	}
	return check{}, fmt.Errorf("%s: no check of this form", line)
}

func readExample(file string) (e example, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return e, err
	}
	for _, line := range checkLine.FindAllString(string(text), -1) {
		c, err := parseCheck(line)
		if err != nil {
			return e, err
		}
		e.checks = append(e.checks, c)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return e, fmt.Errorf("%s: %w", file, err)
		}
		if o.GetKind() == "CustomNetwork" {
			e.cluster = append(e.cluster, o)
		} else {
			e.objects = append(e.objects, o)
		}
	}
	return e, nil
}

// Each file of examples/ is applied as it is, but for the programs of its containers, which come from the image of the
// tests, and for taps where the dataplane has none. Then its checks hold.
func TestExamplesRunAndTheirChecksHold(t *testing.T) {
	needWeft(t)
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(files) < 9 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			e, err := readExample(file)
			s.must(err)
			if len(e.checks) == 0 {
				t.Fatal("the file has no line \"# check:\"")
			}
			s.applyExample(e)
			for _, c := range e.checks {
				s.checkExample(c)
			}
		})
	}
}

// applyExample applies the objects, and waits until all pods are ready. Pods of an example are on both nodes.
func (s *space) applyExample(e example) {
	s.t.Helper()
	if slices.ContainsFunc(e.objects, func(o unstructured.Unstructured) bool {
		return o.GetKind() == "NetworkAttachmentDefinition"
	}) {
		s.applyDefinitionKind()
	}
	for _, o := range e.cluster {
		text, err := o.MarshalJSON()
		s.must(err)
		s.apply(string(text))
	}
	replicas := 0
	pods := 0
	for _, o := range e.objects {
		path := []string{"spec", "template"}
		if o.GetKind() == "Pod" {
			path = nil
			pods++
		}
		s.must(adapt(o.Object, path, s.c.Nodes[pods%len(s.c.Nodes)].Name))
		if n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); found {
			replicas += int(n)
		}
		text, err := o.MarshalJSON()
		s.must(err)
		_, err = s.c.Kubectl(s.t.Context(), text, "apply", "-n", s.name, "-f", "-")
		s.must(err)
	}
	s.must(cluster.Eventually(s.t.Context(), "all pods of the example exist", func(ctx context.Context) error {
		list, err := s.c.Client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != pods+replicas {
			err = fmt.Errorf("%d pods exist, want %d", len(list.Items), pods+replicas)
		}
		return err
	}))
	list, err := s.c.Client.CoreV1().Pods(s.name).List(s.t.Context(), metav1.ListOptions{})
	s.must(err)
	for _, pod := range list.Items {
		s.ready(pod.Name)
	}
}

// adapt makes a pod, or the template at path, run programs of the image of the tests. A pod of its own runs on the
// given node, unless it has an affinity.
func adapt(object map[string]any, path []string, node string) error {
	field := func(more ...string) []string { return append(slices.Clone(path), more...) }
	for _, kind := range []string{"containers", "initContainers"} {
		containers, found, err := unstructured.NestedSlice(object, field("spec", kind)...)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		for _, c := range containers {
			c, ok := c.(map[string]any)
			if !ok {
				return fmt.Errorf("%s: %v is not a container", kind, c)
			}
			if err := adaptContainer(c); err != nil {
				return err
			}
		}
		if err := unstructured.SetNestedSlice(object, containers, field("spec", kind)...); err != nil {
			return err
		}
		if err := unstructured.SetNestedField(object, int64(2),
			field("spec", "terminationGracePeriodSeconds")...); err != nil {
			return err
		}
	}
	if interfaces, found, _ := unstructured.NestedString(object,
		field("metadata", "annotations", "contivpp.io/custom-if")...); found {
		if err := unstructured.SetNestedField(object, weft.CustomInterfaces(interfaces),
			field("metadata", "annotations", "contivpp.io/custom-if")...); err != nil {
			return err
		}
	}
	_, isPlaced, _ := unstructured.NestedMap(object, "spec", "affinity")
	if len(path) > 0 || object["kind"] != "Pod" || isPlaced {
		return nil
	}
	return unstructured.SetNestedStringMap(object, map[string]string{corev1.LabelHostname: node}, "spec",
		"nodeSelector")
}

// adaptContainer replaces the image. e2e-pod has the commands ip and sysctl as the examples use them, and serves
// instead of sleeping.
func adaptContainer(c map[string]any) error {
	command, _, err := unstructured.NestedStringSlice(c, "command")
	if err != nil || len(command) == 0 {
		return errors.Join(err, fmt.Errorf("container %v has no command", c["name"]))
	}
	c["imagePullPolicy"] = string(corev1.PullNever)
	switch command[0] {
	case "sleep":
		c["image"] = cluster.PodImage
		c["args"] = []any{"serve"}
		delete(c, "command")
	case "ip", "sysctl":
		args := []any{}
		for _, word := range command {
			args = append(args, word)
		}
		c["image"] = cluster.PodImage
		c["args"] = args
		delete(c, "command")
	case "/usr/local/bin/weftctl":
		c["image"] = weft.Image
	default:
		return fmt.Errorf("container %v runs %s, which no image of the tests has", c["name"], command[0])
	}
	return nil
}

// podsNamed returns the pod of a name, or the pods with a label.
func (s *space) podsNamed(name string) (pods []corev1.Pod) {
	s.t.Helper()
	if !strings.HasPrefix(name, "app=") {
		return []corev1.Pod{*s.ready(name)}
	}
	list, err := s.c.Client.CoreV1().Pods(s.name).List(s.t.Context(), metav1.ListOptions{LabelSelector: name})
	s.must(err)
	if len(list.Items) == 0 {
		s.t.Fatalf("no pod has the label %s", name)
	}
	return list.Items
}

func (s *space) checkExample(c check) {
	s.t.Helper()
	var targets []netip.Addr
	targetOf := map[netip.Addr]string{} // pod
	if c.of != "" {
		for _, pod := range s.podsNamed(c.of) {
			for _, address := range s.globalOn(&pod, c.link) {
				targets = append(targets, address)
				targetOf[address] = pod.Name
			}
		}
		if len(targets) == 0 {
			s.t.Errorf("%s: the interface has no address", c.line)
		}
	}
	if c.address != "" {
		address, err := netip.ParseAddr(c.address)
		s.must(err)
		if c.from == "" {
			if !slices.Contains(targets, address) {
				s.t.Errorf("%s: it has %v", c.line, targets)
			}
			return
		}
		targets = append(targets, address)
	}
	for _, pod := range s.podsNamed(c.from) {
		for _, target := range targets {
			if targetOf[target] == pod.Name {
				continue
			}
			if c.refused {
				if out, err := s.c.Exec(s.t.Context(), &pod, "ping", target.String()); err == nil {
					s.t.Errorf("%s: %s reaches %s: %s", c.line, pod.Name, target, out)
				}
				continue
			}
			s.must(cluster.Eventually(s.t.Context(), pod.Name+" reaches "+target.String(),
				func(ctx context.Context) error {
					_, err := s.c.Exec(ctx, &pod, "ping", target.String(), "10")
					return err
				}))
		}
	}
}

// globalOn returns the addresses of an interface of a pod without link-local ones.
func (s *space) globalOn(pod *corev1.Pod, link string) (addresses []netip.Addr) {
	s.t.Helper()
	for line := range strings.Lines(s.exec(pod, "links")) {
		words := strings.Fields(line)
		if len(words) < 5 || words[0] != link {
			continue
		}
		if p, err := netip.ParsePrefix(words[len(words)-1]); err == nil && !p.Addr().IsLinkLocalUnicast() {
			addresses = append(addresses, p.Addr())
		}
	}
	return addresses
}
