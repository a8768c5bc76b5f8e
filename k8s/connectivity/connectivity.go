// Package connectivity tests the connectivity of a cluster's pods with probe pods of its own.
package connectivity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/retry"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/fleet"
)

// Limits of a test.
const (
	cleanupLimit = 30 * time.Second
	networkLimit = 30 * time.Second // until all nodes have a network
	poll         = 500 * time.Millisecond
)

// label marks the objects of tests.
const label = "contivpp.io/connectivity-test"

// Config configures a test.
type Config struct {
	Client   *client.Client
	Fleet    *fleet.Fleet
	Image    string        // of the probe pods; "": the agents' image
	Nodes    []string      // one or two; none: the first ready nodes with an agent
	Keep     bool          // keep the objects of the test
	DNS      string        // a name to look up; "": none
	Probe    time.Duration // timeout of a probe
	PodReady time.Duration // timeout of the start of the probe pods

	Progress func(text string)   // called for each step
	Report   func(result Result) // called for each result
}

// The states of a result.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped"
)

// Result is the result of one test.
type Result struct {
	Test   string `json:"test"`   // what is tested: eth0 tcp, for example
	Path   string `json:"path"`   // same node, other node, Service and so on
	To     string `json:"to"`     // the address or name
	State  string `json:"state"`  // Passed, Failed or Skipped
	Took   string `json:"took"`   // a duration
	Reason string `json:"reason"` // why it failed or was skipped
	Hint   string `json:"hint"`   // the next command
}

// test is a running test.
type test struct {
	Config
	name    string // of the namespace and the networks
	nodes   []fleet.Node
	image   string
	policy  corev1.PullPolicy
	ipv6    bool
	memif   bool
	nets    []string // networks that are ready
	pods    []*probePod
	created []func(context.Context) error // deletions, in the order of the creations
}

// Run tests the connectivity and removes everything that it created, also if ctx ends. It returns an error if the test
// itself cannot be done; failed tests are results.
func Run(ctx context.Context, c Config) (err error) {
	t := &test{Config: c}
	random := make([]byte, 3)
	_, _ = rand.Read(random) // never fails
	t.name = "weft-check-" + hex.EncodeToString(random)
	defer func() { err = errors.Join(err, t.clean(ctx)) }()
	for _, step := range []func(context.Context) error{
		t.chooseNodes, t.readNodes, t.createNamespace, t.createNetworks, t.createPods, t.awaitPods, t.probe,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *test) chooseNodes(ctx context.Context) error {
	all, err := t.Fleet.Nodes(ctx)
	if err != nil {
		return err
	}
	if len(t.Config.Nodes) > 0 {
		t.nodes, err = fleet.Choose(all, t.Config.Nodes)
		return err
	}
	for _, n := range all {
		if n.Ready && n.Agent != "" && len(t.nodes) < 2 {
			t.nodes = append(t.nodes, n)
		}
	}
	if len(t.nodes) == 0 {
		return errors.New("no node is ready and has an agent; kubectl weft status shows the nodes")
	}
	return nil
}

// readNodes finds the image of the agents, and what the nodes support.
func (t *test) readNodes(ctx context.Context) error {
	t.image = t.Image
	t.policy = corev1.PullIfNotPresent
	if t.image == "" {
		image, policy, err := t.Fleet.Image(ctx, t.nodes[0])
		if err != nil {
			return fmt.Errorf("%w; set --image", err)
		}
		t.image = image
		t.policy = policy
	}
	t.memif = true
	t.ipv6 = true
	for _, n := range t.nodes {
		node, err := t.Client.Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return t.Client.ListError(ctx, "node "+n.Name, err)
		}
		devices := node.Status.Allocatable[corev1.ResourceName(memifResource)]
		t.memif = t.memif && devices.Value() > 0
		t.ipv6 = t.ipv6 &&
			slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return isIPv6(a.Address) })
	}
	return nil
}

func (t *test) createNamespace(ctx context.Context) error {
	t.Progress(fmt.Sprintf("creating namespace %s on %s", t.name, names(t.nodes)))
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.name, Labels: map[string]string{label: t.name}}}
	if _, err := t.Client.Namespaces().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", t.name, client.OneLine(err))
	}
	t.created = append(t.created, func(ctx context.Context) error {
		return absent("namespace "+t.name, t.Client.Namespaces().Delete(ctx, t.name, metav1.DeleteOptions{}))
	})
	return nil
}

// createNetworks creates a network for each type of extra interface, because the kernel of a pod has one route to the
// addresses of a network. Networks are isolated, and their addresses are from a range for tests (RFC 2544) and a unique
// local one.
func (t *test) createNetworks(ctx context.Context) error {
	for i, kind := range []string{"tap", "veth"} {
		n := &v1.CustomNetwork{
			ObjectMeta: metav1.ObjectMeta{Name: t.name + "-" + kind, Labels: map[string]string{label: t.name}},
		}
		n.Spec = v1.CustomNetworkSpec{
			Type:        v1.L3,
			CIDRs:       []v1.CIDR{v1.CIDR(fmt.Sprintf("198.18.%d.0/24", 240+i))},
			BlockSize:   26,
			BlockSizeV6: 122,
		}
		n.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: t.name}}
		if t.ipv6 {
			n.Spec.CIDRs = append(n.Spec.CIDRs, v1.CIDR(fmt.Sprintf("fd57:6566:74%02x::/112", i)))
		}
		if _, err := t.Client.Networks().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create CustomNetwork %s: %w", n.Name, client.OneLine(err))
		}
		t.created = append(t.created, func(ctx context.Context) error {
			return absent("CustomNetwork "+n.Name, t.Client.Networks().Delete(ctx, n.Name, metav1.DeleteOptions{}))
		})
		if reason := t.awaitNetwork(ctx, n.Name); reason != "" {
			t.Report(Result{
				Test:   kind + " network",
				Path:   "cluster",
				To:     n.Name,
				State:  Failed,
				Reason: reason,
				Hint:   "kubectl weft status",
			})
			continue
		}
		t.nets = append(t.nets, n.Name)
	}
	return ctx.Err()
}

// awaitNetwork waits until all nodes have a network, and returns why they do not.
func (t *test) awaitNetwork(ctx context.Context, name string) (reason string) {
	t.Progress("waiting for network " + name)
	reason = "no status: does the controller run?"
	ctx, cancel := context.WithTimeout(ctx, networkLimit)
	defer cancel()
	for {
		n, err := t.Client.Networks().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			c := meta.FindStatusCondition(n.Status.Conditions, v1.ConditionReady)
			switch {
			case c != nil && c.Status == metav1.ConditionTrue:
				return ""
			case c != nil:
				reason = c.Reason + ": " + c.Message
			}
		}
		if retry.Pause(ctx, poll) != nil {
			return "not ready: " + reason
		}
	}
}

// clean deletes everything that the test created, the newest object first.
func (t *test) clean(ctx context.Context) error {
	if len(t.created) == 0 {
		return nil
	}
	remove := fmt.Sprintf("kubectl delete namespace,customnetwork -l %s=%s", label, t.name)
	if t.Keep {
		t.Progress("the objects are kept; to delete them: " + remove)
		return nil
	}
	t.Progress("deleting namespace " + t.name)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	var errs []error
	for _, d := range t.created { // the namespace first: networks wait for its pods
		errs = append(errs, d(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w; to delete what is left: %s", client.OneLine(err), remove)
	}
	return nil
}

// absent returns the error of a deletion; a missing object is no error.
func absent(what string, err error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", what, client.OneLine(err))
}
