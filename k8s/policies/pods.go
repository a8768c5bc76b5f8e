package policies

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// mainInterface is how container runtimes of kubelet name the main interface.
const mainInterface = "eth0"

// podFeed gives the engine the pods of all nodes. It has them as a watch shows them; until then, as the API server
// answered at their ADD.
type podFeed struct {
	watch     *informer.Informer[*corev1.Pod]
	engine    *policy.Engine
	evidence  *evidence
	attached  attachments
	publisher *publisher
	asked     map[policy.ID]asked // pods that no watch had shown when their attachment was added
}

func newPodFeed(s *shared, e *evidence, p *publisher) *podFeed {
	return &podFeed{
		watch: informer.Add(s.watches, "pods of all nodes", s.config.Client.Pods(""), informer.Options[*corev1.Pod]{
			Lighten: lightenPod, Same: samePod,
		}),
		engine:    s.engine,
		evidence:  e,
		attached:  p.attached,
		publisher: p,
		asked:     make(map[policy.ID]asked),
	}
}

// shown returns a pod that has not ended and does not use its node's network; false: no watch has shown it, or it is
// another one of the name. UID "" is any.
func (f *podFeed) shown(id policy.ID, uid string) (*corev1.Pod, bool) {
	isIt := func(o *corev1.Pod) bool { return uid == "" || string(o.UID) == uid || o.Annotations[mirror] == uid }
	if o, known := f.watch.One(id.String()); known && isIt(o) {
		return o, true
	}
	o := f.asked[id].pod
	return o, o != nil && isIt(o)
}

// asked is the answer of the API server to a question about a pod.
type asked struct {
	uid string
	pod *corev1.Pod // nil: a watch has shown the pod, so its state at the ADD does not count any more
}

// supersede forgets the answer about a pod that a watch has shown.
func (f *podFeed) supersede(id policy.ID) {
	o, known := f.watch.One(id.String())
	if was, wasAsked := f.asked[id]; known && wasAsked && string(o.UID) == was.uid {
		was.pod = nil
		f.asked[id] = was
	}
}

// uidOf returns the UID of the pod of attachments; "" if it is not known. If the runtime did not pass it, it is the UID
// of the pod that the API server had at the ADD: a watch may show its predecessor.
func (f *podFeed) uidOf(id policy.ID, attachments []*pod.Attachment) string {
	if len(attachments) == 0 {
		return ""
	}
	if uid := attachments[0].Pod.UID; uid != "" {
		return uid
	}
	return f.asked[id].uid
}

// refresh gives the current state of a pod to the engine. A pod without addresses is no peer of any: it would only
// count for the limits of the policies that select it, and a tenant can have many pods that no node runs.
func (f *podFeed) refresh(id policy.ID) {
	f.supersede(id)
	attachments := f.attached.newestOf(id)
	o, known := f.shown(id, f.uidOf(id, attachments))
	if !known || hasEnded(o) || o.Spec.HostNetwork || len(attachments) == 0 && len(o.Status.PodIPs) == 0 {
		if _, was := f.engine.ListsOf(id); was {
			f.publisher.closed(id)
		}
		f.engine.DeletePod(id)
		f.resolve(f.evidence.claims.set(id, nil))
		return
	}
	if _, was := f.engine.ListsOf(id); !was {
		f.publisher.opened(id)
	}
	others := f.evidence.claims.set(id, f.evidence.claimsOf(o, attachments))
	f.engine.SetPod(f.evidence.podOf(o, attachments))
	f.resolve(others)
}

// resolve gives pods to the engine if their claims count, or no longer count, because another pod has changed.
func (f *podFeed) resolve(others []policy.ID) {
	for _, id := range others {
		attachments := f.attached.newestOf(id)
		if o, known := f.shown(id, f.uidOf(id, attachments)); known && !hasEnded(o) && !o.Spec.HostNetwork {
			f.engine.SetPod(f.evidence.podOf(o, attachments))
		}
	}
}

// isGone reports whether a version of a pod is of one that has ended or was deleted.
func (f *podFeed) isGone(o *corev1.Pod) bool {
	now, known := f.watch.One(o.Namespace + "/" + o.Name)
	return !known || now.UID != o.UID || hasEnded(now)
}

// namedPortsOf lists the named ports of a pod that were kept (keptPorts).
func namedPortsOf(o *corev1.Pod) []policy.NamedPort {
	var ports []policy.NamedPort
	for _, c := range slices.Concat(o.Spec.Containers, o.Spec.InitContainers) {
		for _, port := range c.Ports {
			protocol, err := policy.ParseProtocol(string(port.Protocol))
			isValid := err == nil && port.ContainerPort > 0 && port.ContainerPort <= 65535
			if !isValid {
				continue
			}
			ports = append(ports, policy.NamedPort{
				Name:     port.Name,
				Protocol: protocol,
				Port:     uint16(port.ContainerPort),
			})
		}
	}
	return ports
}

// interfaceOf converts an interface of Weft.
func interfaceOf(a *pod.Attachment, i pod.Interface) policy.Interface {
	out := policy.Interface{
		Name: i.Name,
		Main: i.Network == "" && i.Name == a.Key.IfName && (a.Mode == "" || a.Mode == pod.ModePrimary) &&
			i.Name == mainInterface,
	}
	if i.Definition != "" {
		out.Networks = append(out.Networks, i.Definition)
	}
	network := i.Network
	if network == "" {
		network = policy.DefaultNetwork
	}
	out.Networks = append(out.Networks, network)
	for _, p := range i.Addresses {
		out.Addresses = append(out.Addresses, p.Addr())
	}
	return out
}
