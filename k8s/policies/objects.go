package policies

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/networkstatus"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

var errNotSynced = errors.New(
	"the API server has not shown all policies, pods and namespaces yet; the rules of an earlier run hold")

// mirror is kubelet's annotation on the API server's copy of a static pod: the UID that the runtime knows.
const mirror = "kubernetes.io/config.mirror"

// maxUID is the longest UID of a static pod. Kubelet's is a hash of 32 digits, but any author of a pod can write the
// annotation.
const maxUID = 64

// lightenPod keeps what policies depend on: of a pod of several kilobytes a few hundred bytes. Its owner may write
// annotations of 256 KiB.
func lightenPod(o *corev1.Pod) *corev1.Pod {
	light := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels,
	}}
	kept := make(map[string]string)
	if text := lightenStatus(o.Annotations[networkstatus.Annotation]); text != "" {
		kept[networkstatus.Annotation] = text
	}
	if uid := o.Annotations[mirror]; uid != "" && len(uid) <= maxUID {
		kept[mirror] = uid
	}
	if len(kept) > 0 {
		light.Annotations = kept
	}
	light.Spec.NodeName = o.Spec.NodeName
	light.Spec.HostNetwork = o.Spec.HostNetwork
	light.Status.Phase = o.Status.Phase
	light.Status.PodIPs = o.Status.PodIPs
	ports := make(keptPorts)
	light.Spec.Containers = ports.of(o.Spec.Containers)
	light.Spec.InitContainers = ports.of(o.Spec.InitContainers) // sidecars serve, too, but the others come first
	return light
}

// maxNamedPorts is the number of named ports of a pod that are kept: its owner writes tens of thousands.
const maxNamedPorts = 1024

// maxPortsOfAName is the number of ports of one name that are kept of a pod. Each is a rule of the pods that may
// contact it, so that pods with thousands of them would exceed the limits of other namespaces.
const maxPortsOfAName = 16

// keptPorts counts the named ports that are kept of a pod, by name; the key "" has the sum.
type keptPorts map[string]int

// of keeps the named ports of containers: at most maxNamedPorts of the pod, and maxPortsOfAName of a name.
func (k keptPorts) of(list []corev1.Container) []corev1.Container {
	var named []corev1.ContainerPort
	for i := range list {
		for _, p := range list[i].Ports {
			if p.Name == "" || k[""] == maxNamedPorts || k[p.Name] == maxPortsOfAName {
				continue
			}
			k[""]++
			k[p.Name]++
			named = append(named, corev1.ContainerPort{
				Name:          p.Name,
				Protocol:      p.Protocol,
				ContainerPort: p.ContainerPort,
			})
		}
	}
	if named == nil {
		return nil
	}
	return []corev1.Container{{Ports: named}}
}

func samePod(a, b *corev1.Pod) bool {
	x := *a
	y := *b
	x.ResourceVersion = ""
	y.ResourceVersion = ""
	return reflect.DeepEqual(x, y)
}

func lightMeta(o *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
		CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp,
	}
}

func lightenNamespace(o *corev1.Namespace) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels},
	}
}

func lightenNode(o *corev1.Node) *corev1.Node {
	light := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels},
	}
	light.Status.Addresses = o.Status.Addresses
	return light
}

func sameNode(a, b *corev1.Node) bool {
	return maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Status.Addresses, b.Status.Addresses)
}

func (p *Policies) refreshNamespace(name string) {
	o, known := p.namespaces.One(name)
	if known {
		p.engine.SetNamespace(name, o.Labels)
	} else {
		p.engine.DeleteNamespace(name)
	}
	if known == p.shownNamespaces[name] {
		return
	}
	if p.shownNamespaces[name] = known; !known {
		delete(p.shownNamespaces, name)
	}
	for id := range p.attached {
		switch {
		case id.Namespace != name:
		case known:
			p.untold[id] = true // not closed any more
		default:
			p.pending.add(id) // closed from now on
		}
	}
}

func (p *Policies) refreshNode(name string) {
	if o, known := p.nodes.One(name); known {
		p.engine.SetNode(name, o.Labels, p.addressesOf(o))
	} else {
		p.engine.DeleteNode(name)
	}
}

// because returns why a policy is invalid. What replaces unreadable parts of a policy is invalid for another reason
// than its author knows.
func because(err error, id policy.Ref, unreadable []string) error {
	if len(unreadable) == 0 {
		return err
	}
	return &policy.InvalidError{Policy: id, Reasons: unreadable}
}

// put gives a policy to the engine. What is invalid about it denies.
func (p *Policies) put(o policy.Policy, err error) {
	p.engine.SetPolicy(o)
	if err == nil {
		delete(p.invalid, o.Ref)
		return
	}
	if p.invalid[o.Ref] != err.Error() {
		p.invalid[o.Ref] = err.Error()
		p.config.Log.Error("policy has invalid parts, which deny connections", "err", err)
	}
}

// shown returns a pod that has not ended and does not use its node's network; false: no watch has shown it, or it is
// another one of the name. UID "" is any.
func (p *Policies) shown(id policy.ID, uid string) (*corev1.Pod, bool) {
	isIt := func(o *corev1.Pod) bool { return uid == "" || string(o.UID) == uid || o.Annotations[mirror] == uid }
	if o, known := p.pods.One(id.String()); known && isIt(o) {
		return o, true
	}
	o := p.asked[id].pod
	return o, o != nil && isIt(o)
}

// asked is the answer of the API server to a question about a pod.
type asked struct {
	uid string
	pod *corev1.Pod // nil: a watch has shown the pod, so its state at the ADD does not count any more
}

// supersede forgets the answer about a pod that a watch has shown.
func (p *Policies) supersede(id policy.ID) {
	o, known := p.pods.One(id.String())
	if was, wasAsked := p.asked[id]; known && wasAsked && string(o.UID) == was.uid {
		was.pod = nil
		p.asked[id] = was
	}
}

// newestOf lists the attachments of the newest pod of a name, by age. The sandbox of its predecessor may still be
// there.
func (p *Policies) newestOf(id policy.ID) []*pod.Attachment {
	all := slices.Collect(maps.Values(p.attached[id]))
	slices.SortFunc(all, func(a, b *pod.Attachment) int { return a.Created.Compare(b.Created) })
	if len(all) == 0 {
		return nil
	}
	uid := all[len(all)-1].Pod.UID
	return slices.DeleteFunc(all, func(a *pod.Attachment) bool { return a.Pod.UID != uid })
}

// uidOf returns the UID of the pod of attachments; "" if it is not known. If the runtime did not pass it, it is the UID
// of the pod that the API server had at the ADD: a watch may show its predecessor.
func (p *Policies) uidOf(id policy.ID, attachments []*pod.Attachment) string {
	if len(attachments) == 0 {
		return ""
	}
	if uid := attachments[0].Pod.UID; uid != "" {
		return uid
	}
	return p.asked[id].uid
}

func hasEnded(o *corev1.Pod) bool {
	return o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed
}

// refresh gives the current state of a pod to the engine. A pod without addresses is no peer of any: it would only
// count for the limits of the policies that select it, and a tenant can have many pods that no node runs.
func (p *Policies) refresh(id policy.ID) {
	p.supersede(id)
	attachments := p.newestOf(id)
	o, known := p.shown(id, p.uidOf(id, attachments))
	if !known || hasEnded(o) || o.Spec.HostNetwork || len(attachments) == 0 && len(o.Status.PodIPs) == 0 {
		if _, was := p.engine.ListsOf(id); was && p.attached[id] != nil {
			p.pending.add(id) // closed from now on
		}
		p.engine.DeletePod(id)
		p.resolve(p.claims.set(id, nil))
		return
	}
	if _, was := p.engine.ListsOf(id); !was && p.attached[id] != nil {
		p.untold[id] = true // not closed any more
	}
	others := p.claims.set(id, p.claimsOf(o, attachments))
	p.engine.SetPod(p.podOf(o, attachments))
	p.resolve(others)
}

// resolve gives pods to the engine if their claims count, or no longer count, because another pod has changed.
func (p *Policies) resolve(others []policy.ID) {
	for _, id := range others {
		attachments := p.newestOf(id)
		if o, known := p.shown(id, p.uidOf(id, attachments)); known && !hasEnded(o) && !o.Spec.HostNetwork {
			p.engine.SetPod(p.podOf(o, attachments))
		}
	}
}

// Invalid lists the invalid parts of policies, one line for each policy. The invalid parts deny connections.
func (p *Policies) Invalid() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Values(p.invalid))
}
