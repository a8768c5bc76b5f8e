package connectivity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/probe"
)

// kubeletPort is a TCP port on which each node answers, at least by a refusal.
const kubeletPort = 10250

// planned is a probe with the words of its result.
type planned struct {
	probe.Probe
	result Result
}

// probe sends all probes from the client pod and reports their results.
func (t *test) probe(ctx context.Context) error {
	from := t.pod(clientPod)
	if from == nil {
		t.Report(Result{Test: "probes", Path: "all", State: Skipped, Reason: "the client pod does not run"})
		return nil
	}
	plan := t.plan(from)
	plan = append(plan, t.planNodes(ctx)...)
	plan = append(plan, t.planServices(ctx)...)
	if t.DNS != "" {
		plan = append(plan, planned{
			probe.Probe{Kind: probe.DNS, Name: t.DNS}, Result{Test: "DNS", Path: "cluster", To: t.DNS},
		})
	}
	var probes []probe.Probe
	for i := range plan {
		plan[i].ID = i
		plan[i].Timeout = t.Probe
		probes = append(probes, plan[i].Probe)
	}
	if len(probes) == 0 {
		return errors.New("nothing to probe: the pods have no addresses")
	}
	return t.send(ctx, plan, probes)
}

// send runs the probes in the client pod. Each line of its output is an outcome.
func (t *test) send(ctx context.Context, plan []planned, probes []probe.Probe) error {
	t.Progress(fmt.Sprintf("sending %d probes", len(probes)))
	document, err := json.Marshal(probes)
	if err != nil {
		return err
	}
	longest := cleanupLimit
	for _, p := range probes {
		longest += p.Limit()
	}
	limit, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	lines := newOutcomes(len(plan), func(o probe.Outcome) { t.Report(t.resultOf(ctx, plan[o.ID], o)) })
	if err := t.run(limit, clientPod, []string{"send", string(document)}, lines); err != nil {
		return err
	}
	return lines.complete()
}

func (t *test) resultOf(ctx context.Context, p planned, o probe.Outcome) Result {
	r := p.result
	r.State = Passed
	r.Took = o.Took.Round(10 * time.Microsecond).String()
	if p.Kind == probe.Full && o.Size > 0 {
		r.Test += fmt.Sprintf(" %d B", o.Size)
	}
	if o.Error == "" {
		return r
	}
	r.State = Failed
	r.Reason = o.Error
	if o.Fits > 0 {
		r.Reason = fmt.Sprintf("packets of %d bytes are lost, and of %d bytes arrive, %s", o.Size, o.Fits, t.whereTo(r))
	}
	switch {
	case r.Path == "Service" && !t.hasKubeProxy(ctx):
		r.State = Skipped
		r.Reason = o.Error + "; no kube-proxy was found, and Weft does not implement Services"
	case p.Kind == probe.DNS:
		r.Hint = "kubectl -n kube-system get pods -l k8s-app=kube-dns"
	case p.Kind == probe.Full && r.Path == "other node":
		r.Hint = "kubectl weft status --node " + t.nodes[0].Name +
			" # the condition path-mtu names paths that carry less"
	case p.Kind == probe.Full:
		r.Hint = "larger packets than the path carries? kubectl weft objects linux.link --node " + t.nodes[0].Name
	case r.Path == "other node":
		r.Hint = "kubectl weft counters --node " + t.nodes[len(t.nodes)-1].Name
	default:
		r.Hint = "kubectl weft counters --node " + t.nodes[0].Name
	}
	return r
}

// whereTo names the nodes between which a probe went.
func (t *test) whereTo(r Result) string {
	first := t.nodes[0].Name
	if r.Path == "other node" {
		return fmt.Sprintf("from node %s to node %s", first, t.nodes[len(t.nodes)-1].Name)
	}
	return "on node " + first
}

func (t *test) pod(name string) *probePod {
	i := slices.IndexFunc(t.pods, func(p *probePod) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return t.pods[i]
}

// plan returns the probes to all interfaces of the servers.
func (t *test) plan(from *probePod) []planned {
	var plan []planned
	for _, server := range []string{nearPod, farPod} {
		to := t.pod(server)
		if to == nil {
			continue
		}
		path := "same node"
		if server == farPod {
			path = "other node"
		}
		for _, i := range to.interfaces {
			for _, address := range i.Addresses {
				plan = append(plan, probesOf(from, i, address, path)...)
			}
		}
	}
	return plan
}

// probesOf returns the probes to one address. A memif is no interface of the kernel, and its program answers pings
// only.
func probesOf(from *probePod, to probe.Interface, address netip.Addr, path string) []planned {
	via := to.Name
	if to.Memif {
		via = "tap0" // on the same network
	}
	if !from.has(via, address) {
		return nil
	}
	kinds := []string{probe.Ping, probe.TCP, probe.UDP, probe.Full}
	if to.Memif {
		kinds = kinds[:1]
	}
	var plan []planned
	for _, kind := range kinds {
		plan = append(plan, planned{
			probe.Probe{Kind: kind, To: address, Port: probe.Port, Via: via},
			Result{
				Test: strings.Join([]string{to.Name, family(address), kindWords[kind]}, " "),
				Path: path,
				To:   address.String(),
			},
		})
	}
	return plan
}

var kindWords = map[string]string{probe.Ping: "ping", probe.TCP: "TCP", probe.UDP: "UDP", probe.Full: "MTU"}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// has reports whether a pod has an interface with an address of the family.
func (p *probePod) has(name string, address netip.Addr) bool {
	return slices.ContainsFunc(p.interfaces, func(i probe.Interface) bool {
		return i.Name == name &&
			slices.ContainsFunc(i.Addresses, func(a netip.Addr) bool { return a.Is4() == address.Is4() })
	})
}

// planNodes returns the probes to the nodes.
func (t *test) planNodes(ctx context.Context) []planned {
	var plan []planned
	for i, n := range t.nodes {
		node, err := t.Client.Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			continue // it existed a moment ago: the probes of its pods fail
		}
		path := "own node"
		if i > 0 {
			path = "other node"
		}
		for _, a := range node.Status.Addresses {
			address, err := netip.ParseAddr(a.Address)
			if a.Type != corev1.NodeInternalIP || err != nil || !t.pod(clientPod).has("eth0", address) {
				continue
			}
			plan = append(plan, planned{
				probe.Probe{Kind: probe.Connect, To: address, Port: kubeletPort},
				Result{Test: "node " + family(address) + " TCP", Path: path, To: address.String()},
			})
		}
	}
	return plan
}

// planServices returns the probes to the Service of the servers.
func (t *test) planServices(ctx context.Context) []planned {
	s, err := t.Client.Services(t.name).Get(ctx, service, metav1.GetOptions{})
	if err != nil || len(t.pods) < 2 {
		return nil
	}
	var plan []planned
	for _, text := range s.Spec.ClusterIPs {
		address, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		plan = append(plan, planned{
			probe.Probe{Kind: probe.TCP, To: address, Port: probe.Port},
			Result{Test: "Service " + family(address) + " TCP", Path: "Service", To: text},
		})
	}
	return plan
}

// hasKubeProxy reports whether the cluster runs kube-proxy in pods.
func (t *test) hasKubeProxy(ctx context.Context) bool {
	list, err := t.Client.Pods("kube-system").List(ctx, metav1.ListOptions{
		LabelSelector: "k8s-app=kube-proxy",
		Limit:         1,
	})
	return err == nil && len(list.Items) > 0
}
