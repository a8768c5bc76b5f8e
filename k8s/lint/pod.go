package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftnet/weft/internal/yamltext"
	"github.com/weftnet/weft/k8s/endpoints"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
)

// template is a pod, or the template of pods, in an object.
type template struct {
	*object
	at          yamltext.Path // in the object
	annotations map[string]string
	labels      map[string]string
	memifs      deviceLimits // in the limits of the containers, by name
	hostNetwork bool
	claims      bool            // a driver may provide devices that are not in the limits
	socketUsers []yamltext.Path // in the object: texts of containers with contivSocket
}

// templates lists where an object has a pod, or a virtual machine of KubeVirt: itself, a PodTemplate, a Deployment and
// similar kinds, a CronJob, a pool of virtual machines.
var templates = [][]string{
	nil, {"template"}, {"spec", "template"}, {"spec", "jobTemplate", "spec", "template"},
	{"spec", "virtualMachineTemplate", "spec", "template"},
}

// pod returns the pod or template of an object.
func (o *object) pod() (template, bool) {
	for _, path := range templates {
		p := o.fields
		if path != nil {
			p, _, _ = unstructured.NestedMap(o.fields, path...)
		}
		containers, found, _ := unstructured.NestedSlice(p, "spec", "containers")
		_, isGuest, _ := unstructured.NestedMap(p, "spec", "domain")
		isGuest = isGuest && o.isOfKubeVirt()
		if !found && !isGuest {
			continue
		}
		t := template{
			object:      o,
			annotations: textsOf(p, "metadata", "annotations"),
			labels:      textsOf(p, "metadata", "labels"),
		}
		for _, step := range path {
			t.at = t.at.With(step)
		}
		initial, _, _ := unstructured.NestedSlice(p, "spec", "initContainers")
		t.memifs = memifsOf(append(initial, containers...))
		t.hostNetwork, _, _ = unstructured.NestedBool(p, "spec", "hostNetwork")
		_, t.claims, _ = unstructured.NestedSlice(p, "spec", "resourceClaims")
		t.claims = t.claims || isGuest // KubeVirt makes the containers and their limits
		t.socketUsers = slices.Concat(usersOf(initial, t.at.With("spec").With("initContainers")),
			usersOf(containers, t.at.With("spec").With("containers")))
		return t, true
	}
	return template{}, false
}

// memifsOf reads the limits of containers.
func memifsOf(containers []any) deviceLimits {
	memifs := make(deviceLimits)
	for _, c := range containers {
		c, ok := c.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(c, "name")
		limits, _, _ := unstructured.NestedMap(c, "resources", "limits")
		memifs[name] = 0
		if quantity, err := resource.ParseQuantity(fmt.Sprint(limits[pod.Resource])); err == nil {
			memifs[name] = int(quantity.Value())
		}
	}
	return memifs
}

// annotation returns the path of an annotation.
func (t *template) annotation(name string) yamltext.Path {
	return t.at.With("metadata").With("annotations").With(name)
}

// validate reports reasons for which an ADD would refuse the pod, and the controller's findings about a backend of
// Services, as far as they are known without a cluster.
func (t *template) validate() {
	for _, p := range pod.AnnotationProblems(t.annotations, t.namespace(), endpoints.MainInterface) {
		t.say(t.annotation(p.Annotation), p.Err)
	}
	if name := t.annotations[pod.AnnotationEndpoint]; t.hostNetwork && name != "" && name != endpoints.MainInterface {
		t.say(t.annotation(pod.AnnotationEndpoint),
			fmt.Errorf("%s: %s: %w", pod.AnnotationEndpoint, name, endpoints.ErrHostNetwork))
	}
	if main := t.report.Mode == "" || t.report.Mode == pod.ModePrimary; main && !t.hostNetwork {
		for _, p := range pod.LimitProblems(t.annotations) {
			t.say(t.annotation(p.Annotation), p.Err)
		}
	}
	t.noteForeign()
	t.report.found.pods = append(t.report.found.pods, *t)
}

// unpassedLimit tells of a limit that Multus does not pass. The agent enforces it if it can read the pod.
const unpassedLimit = `bandwidth of network %s: its definition lacks "capabilities": {"bandwidth": true}, so Multus ` +

	`does not pass the limit, and an agent without the API server does not know it; add the capability`

// resolve collects the references of a pod, and compares its memifs with its limits.
func (t *template) resolve() {
	found := &t.report.found
	requests, err := pod.InterfaceRequests(t.annotations, endpoints.MainInterface)
	complete := err == nil
	for _, r := range requests {
		found.asksForNetwork(t.object, t.annotation(pod.AnnotationCustom), r.Network)
	}
	custom := len(requests)
	selections, _ := pod.Selections(t.annotations, t.namespace())
	for _, s := range selections {
		d, known := found.definitions[s.Definition()]
		if !known {
			found.asked = append(found.asked, reference{
				t.object, t.annotation(pod.AnnotationNetworks), "NetworkAttachmentDefinition", s.Definition(),
			})
			complete = false
			continue
		}
		if !s.Limits.IsZero() && !d.PassesLimits {
			t.note(t.annotation(pod.AnnotationNetworks), unpassedLimit, s.Definition())
		}
		requests = append(requests, d.Request(s))
	}
	if pools, err := pod.ParsePools(t.annotations); err == nil {
		found.asksForPools(t.object, t.annotation(pod.AnnotationPools), pools)
	}
	if err == nil {
		t.validateNetworks(requests)
		t.validatePersistent(requests)
		t.validateDevices(requests, complete)
		t.validateClaimed(requests[custom:])
	}
}

// validateNetworks reports each interface that its network cannot have beside those before it. Members of other pods
// are unknown, because they may be on other nodes.
func (t *template) validateNetworks(requests []pod.InterfaceRequest) {
	members := make(pod.DirectMembers)
	for _, r := range requests {
		err := t.report.found.suits(r)
		if err == nil && t.report.found.networks[r.Network].Direct {
			err = members.Add(r.Name, r.Network, r.Options.Memif.Role)
		}
		if err != nil {
			t.say(t.annotation(r.Annotation()), err)
		}
	}
}

// validateDevices assigns the requested memifs to the limits like an ADD: first those for which an option names the
// container. Memifs of definitions that are not in the files are unknown; requests is then not complete.
func (t *template) validateDevices(requests []pod.InterfaceRequest, complete bool) {
	memifs := slices.DeleteFunc(slices.Clone(requests), func(r pod.InterfaceRequest) bool {
		return r.Type != pod.TypeMemif
	})
	have := 0
	left := maps.Clone(t.memifs)
	failed := make(map[string]bool)
	for _, n := range t.memifs {
		have += n
	}
	if t.claims {
		return // a driver of devices may provide them
	}
	for _, named := range []bool{true, false} {
		for _, r := range memifs {
			c := r.Options.Memif.Container
			if (c != "") != named || left.take(c) || failed[c] {
				continue
			}
			failed[c] = true // once for a container
			t.say(t.annotation(r.Annotation()),
				pod.Errorf(pod.CodeDeviceMissing, "interface %s: %s", r.Name, t.memifs.missing(c, memifs)))
		}
	}
	if len(memifs) < have && complete {
		t.note(t.at.With("spec").With("containers"),
			"the containers have %d of %s in their limits and the annotations ask for %d: the others stay unused",
			have, pod.Resource, len(memifs))
	}
}

// validatePersistent reports each interface with the option persistentIPs of a pod that does not keep its name.
func (t *template) validatePersistent(requests []pod.InterfaceRequest) {
	why := t.notOfStatefulSet()
	if why == nil {
		return
	}
	for _, r := range requests {
		if !r.Options.PersistentIPs {
			continue
		}
		at := t.annotation(pod.AnnotationOptions)
		if r.Definition != "" {
			at = t.annotation(r.Annotation())
		}
		t.say(at, pod.Errorf(pod.CodeInvalidAnnotation, "interface %s: %w", r.Name, why))
	}
}

// notOfStatefulSet returns the error of an ADD with the option persistentIPs; nil for the pods of a StatefulSet.
func (t *template) notOfStatefulSet() error {
	switch kind := t.text("kind"); kind {
	case pods.StatefulSetKind:
		return nil
	case "Pod":
		u := unstructured.Unstructured{Object: t.fields}
		own := metav1.ObjectMeta{Name: t.name(), OwnerReferences: u.GetOwnerReferences()}
		_, err := pods.SetOf(&own)
		return err
	default:
		return pod.NotOfStatefulSet("a " + kind)
	}
}

// deviceLimits are the memifs in the limits of containers, by name.
type deviceLimits map[string]int

// take takes a memif of the container, or of any ("").
func (l deviceLimits) take(container string) bool {
	for c, n := range l {
		if n > 0 && (container == "" || container == c) {
			l[c]--
			return true
		}
	}
	return false
}

// missing says which memifs a container lacks; "": all containers together.
func (l deviceLimits) missing(container string, memifs []pod.InterfaceRequest) string {
	have := 0
	needed := 0
	for _, r := range memifs {
		if container == "" || r.Options.Memif.Container == container {
			needed++
		}
	}
	var those []string
	for c, n := range l {
		if n > 0 {
			those = append(those, c)
		}
		if container == "" || c == container {
			have += n
		}
	}
	if slices.Sort(those); container != "" && have == 0 {
		return pod.NoMemifs(container, cmp.Or(strings.Join(those, ", "), "none"))
	}
	return pod.FewMemifs(container, have, needed)
}
