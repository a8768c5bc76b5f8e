package lint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/internal/nearest"
	"github.com/weftnet/weft/internal/yamltext"
	"github.com/weftnet/weft/k8s/endpoints"
	"github.com/weftnet/weft/pod"
)

// references are the objects in the files, and what refers to them.
type references struct {
	files       []string               // in the order in which they were read
	names       map[string][]string    // by kind
	networks    map[string]pod.Network // valid ones
	definitions map[string]pod.Definition
	claims      map[string]*claim // by kind and name
	pods        []template
	services    []selecting
	externals   []card // in order
	asked       []reference
	pools       []pool
	vnis        map[uint32]string
}

// reference is a field that names an object.
type reference struct {
	*object
	path       yamltext.Path
	kind, name string
}

// selecting is a Service that may select pods.
type selecting struct {
	*object
	service *corev1.Service
}

type pool struct {
	name   string
	prefix netip.Prefix
}

func (r *references) add(kind, name string) {
	if r.names == nil {
		r.names = make(map[string][]string)
	}
	r.names[kind] = append(r.names[kind], name)
}

// isNetwork notes a valid network.
func (r *references) isNetwork(n pod.Network) {
	if r.networks == nil {
		r.networks = make(map[string]pod.Network)
	}
	r.networks[n.Name] = n
}

// suits returns the error of an ADD with an interface that its network cannot have; nil if the network is not in the
// files.
func (r *references) suits(i pod.InterfaceRequest) error {
	network, known := r.networks[i.Network]
	if name := cmp.Or(i.Network, pod.DefaultNetwork); name == pod.DefaultNetwork || name == pod.StubNetwork {
		network = pod.Network{Name: name}
		known = true
	}
	if !known {
		return nil
	}
	return network.Suits(i)
}

func (r *references) defines(name string, d pod.Definition) {
	if r.definitions == nil {
		r.definitions = make(map[string]pod.Definition)
	}
	r.definitions[name] = d
}

func (r *references) has(kind, name string, c *claim) {
	if r.claims == nil {
		r.claims = make(map[string]*claim)
	}
	r.claims[kind+" "+name] = c
	r.add(kind, name)
}

func (r *references) asksForPools(o *object, path yamltext.Path, names []string) {
	for _, name := range names {
		r.asked = append(r.asked, reference{o, path, "IPPool", name})
	}
}

func (r *references) asksForNetwork(o *object, path yamltext.Path, name string) {
	if name != pod.DefaultNetwork && name != pod.StubNetwork && name != "" {
		r.asked = append(r.asked, reference{o, path, "CustomNetwork", name})
	}
}

// hasPool reports a pool that overlaps one before it. Which of both the nodes use depends on their age.
func (r *references) hasPool(o *object, prefix netip.Prefix) {
	for _, other := range r.pools {
		if other.prefix.Overlaps(prefix) {
			o.say(spec("cidr"), fmt.Errorf("%s overlaps %s of the pool %s", prefix, other.prefix, other.name))
		}
	}
	r.pools = append(r.pools, pool{o.name(), prefix})
}

func (r *references) takesVNI(o *object, vni uint32) {
	if other := r.vnis[vni]; vni != 0 && other != "" {
		o.say(spec("vni"), fmt.Errorf("VNI %d is that of the network %s", vni, other))
	}
	if r.vnis == nil {
		r.vnis = make(map[uint32]string)
	}
	r.vnis[vni] = o.name()
}

// Finish validates what needs all files: references between objects, and the limits of pods. It sorts the problems by
// file and line.
func (r *Report) Finish() {
	for _, key := range slices.Sorted(maps.Keys(r.found.claims)) {
		r.found.claims[key].resolve()
	}
	for i := range r.found.pods {
		r.found.pods[i].resolve()
	}
	for _, s := range r.found.services {
		s.resolve()
	}
	for n, c := range r.found.externals {
		c.resolve(r.found.externals[:n])
	}
	for _, ref := range r.found.asked {
		names := r.found.names[ref.kind]
		if !slices.Contains(names, ref.name) {
			ref.note(ref.path, "%s %s is not in these files%s", ref.kind, ref.name, nearest.Hint(ref.name, names))
		}
	}
	inOrder := func(a, b Fault) int {
		return cmp.Or(slices.Index(r.found.files, a.File)-slices.Index(r.found.files, b.File), a.Line-b.Line,
			strings.Compare(a.Path, b.Path))
	}
	slices.SortStableFunc(r.Faults, inOrder)
	slices.SortStableFunc(r.Notes, inOrder)
	r.found = references{}
}

// card is an interface of an ExternalInterface on a node.
type card struct {
	*object
	path yamltext.Path
	is   pod.External
}

// resolve reports VLANs that the network does not have, and frames of a card that belong to an earlier object.
func (c card) resolve(earlier []card) {
	network, known := c.report.found.networks[c.is.Network]
	if c.is.Network == pod.DefaultNetwork {
		network = pod.Network{Name: pod.DefaultNetwork}
		known = true
	}
	if known {
		if err := network.SuitsExternal(c.is); err != nil {
			c.say(c.path, err)
		}
	}
	for _, other := range earlier {
		isSameCard := other.is.Node == c.is.Node && other.is.Interface == c.is.Interface
		if !isSameCard || !c.is.IsTrunk() && !other.is.IsTrunk() {
			continue
		}
		if why := c.is.SharesTags(other.is); why != "" {
			c.say(c.path, errors.New(why))
		}
	}
}

// resolve reports each interface that pods in the files name although Kubernetes makes the endpoints of the Service,
// like the controller.
func (s selecting) resolve() {
	pods := make(map[string][]string) // by the interface that they name
	for _, t := range s.report.found.pods {
		if name := t.annotations[pod.AnnotationEndpoint]; name != "" && name != endpoints.MainInterface &&
			t.namespace() == s.namespace() &&
			endpoints.Selects(s.service, t.labels) {
			pods[name] = append(pods[name], t.name())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		s.say(spec("selector"), errors.New(endpoints.Ignored(s.service, name, pods[name])))
	}
}
