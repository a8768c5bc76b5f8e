package k8s

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/pod"
)

// PodReport is what a pod got, as its PodInterfaces says.
type PodReport struct {
	Pod        pod.ID
	Sandbox    string
	Interfaces []v1.PodInterface
}

// PodReporter makes the PodInterfaces of a node's pods be what is reported. It is used by one goroutine.
type PodReporter struct {
	cluster *Cluster
	there   map[string]*v1.PodInterfaces // of this node, by namespace/name, as they were written or read last; nil: not known
}

// PodReporter makes a reporter that knows nothing yet.
func (c *Cluster) PodReporter() *PodReporter { return &PodReporter{cluster: c} }

// Forget makes the next report read the object first, because a third party may have changed it.
func (r *PodReporter) Forget() { r.there = nil }

// Report writes what is missing or differs and removes the rest of this node's. Pods that the API server has not shown are
// left as they are, and the error says that they wait. After an error it is to be called again.
func (r *PodReporter) Report(ctx context.Context, reports []PodReport) error {
	if !r.cluster.pods.synced() {
		return errors.New("report what pods got: the API server has not shown this node's pods yet")
	}
	if err := r.look(ctx); err != nil {
		return err
	}
	wanted := make(map[string]*v1.PodInterfaces)
	var errs []error
	for _, report := range reports {
		p := r.cluster.Pod(report.Pod)
		if p == nil {
			continue // it was made again, or is gone, and the sandbox is about to follow it
		}
		o := &v1.PodInterfaces{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
		}}}
		o.Node, o.PodUID = v1.NodeName(r.cluster.config.Node), string(p.UID)
		o.Sandbox, o.Interfaces, o.Summary = report.Sandbox, report.Interfaces, summaryOf(report.Interfaces)
		wanted[p.Namespace+"/"+p.Name] = o
		errs = append(errs, r.write(ctx, o))
	}
	for _, key := range slices.Sorted(maps.Keys(r.there)) {
		if wanted[key] == nil {
			errs = append(errs, r.remove(ctx, key))
		}
	}
	if err := errors.Join(errs...); err != nil {
		r.Forget()
		return err
	}
	return nil
}

// summaryOf lists name, type, network and addresses of each interface.
func summaryOf(interfaces []v1.PodInterface) string {
	var texts []string
	for _, i := range interfaces {
		texts = append(texts, strings.Join(append([]string{i.Name, i.Type, i.Network}, i.Addresses...), " "))
	}
	return strings.Join(texts, ", ")
}

// look reads what there is of this node, unless it is known.
func (r *PodReporter) look(ctx context.Context) error {
	if r.there != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := r.cluster.config.Client.PodInterfaces("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("node", r.cluster.config.Node).String(),
	})
	if err != nil {
		return fmt.Errorf("list what pods got: %w", oneLine{err})
	}
	r.there = make(map[string]*v1.PodInterfaces, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		r.there[o.Namespace+"/"+o.Name] = o
	}
	return nil
}

// write makes one be as wanted.
func (r *PodReporter) write(ctx context.Context, o *v1.PodInterfaces) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key, store := o.Namespace+"/"+o.Name, r.cluster.config.Client.PodInterfaces(o.Namespace)
	had := r.there[key]
	if had != nil && alike(had, o) {
		return nil
	}
	var written *v1.PodInterfaces
	var err error
	if had == nil {
		written, err = store.Create(ctx, o, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) { // the pod of that name was on another node
		had, err = store.Get(ctx, o.Name, metav1.GetOptions{})
	}
	if err == nil && had != nil {
		o.ResourceVersion, o.UID = had.ResourceVersion, had.UID
		written, err = store.Update(ctx, o, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write what pod %s got: %w", key, oneLine{err})
	}
	r.there[key] = written
	return nil
}

func alike(x, y *v1.PodInterfaces) bool {
	return x.Node == y.Node && x.PodUID == y.PodUID && x.Sandbox == y.Sandbox &&
		x.Summary == y.Summary && equality.Semantic.DeepEqual(x.Interfaces, y.Interfaces) && equality.Semantic.DeepEqual(x.OwnerReferences, y.OwnerReferences)
}

// remove deletes the very object that was seen. That of a pod made again on another node is that node's by now.
func (r *PodReporter) remove(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	o := r.there[key]
	err := r.cluster.config.Client.PodInterfaces(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove what pod %s got: %w", key, oneLine{err})
	}
	delete(r.there, key)
	return nil
}

// AnnotationNetworkStatus tells what interfaces a pod got, as the multi-net specification of the Network Plumbing Working
// Group says (version 1.3, section 4.1.3).
const AnnotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"

// networkStatus is one interface in the annotation.
type networkStatus struct {
	Name       string       `json:"name"` // of the NetworkAttachmentDefinition, the CNI network, or Weft's network
	Interface  string       `json:"interface"`
	IPs        []netip.Addr `json:"ips,omitempty"`
	MAC        string       `json:"mac,omitempty"`
	MTU        int          `json:"mtu,omitempty"`
	Default    bool         `json:"default,omitempty"`
	DNS        statusDNS    `json:"dns"` // an empty object where there is none: that is what others write, and read
	DeviceInfo *deviceInfo  `json:"device-info,omitempty"`
	Gateways   []netip.Addr `json:"gateway,omitempty"`
}

type statusDNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// deviceInfo is a device as the device information specification, 1.1.0, describes it.
type deviceInfo struct {
	Type    string     `json:"type"`
	Version string     `json:"version"`
	Memif   *memifInfo `json:"memif,omitempty"`
}

type memifInfo struct {
	Role string `json:"role"` // of the pod's end
	Path string `json:"path"` // of the socket, on the node
	Mode string `json:"mode"`
}

// runtimesName is what kubelet's runtimes call the interface that they ask for.
const runtimesName = "eth0"

// PodStatus is the annotation for a pod with these attachments; false: it is not Weft's to write. It is not where
// another plugin calls Weft for some network, for that one tells of all, and where Weft made none of the pod's interfaces.
func PodStatus(attachments []pod.Attachment) (text string, ours bool) {
	var main *pod.Attachment
	for i := range attachments {
		a := &attachments[i]
		switch {
		case a.Mode == pod.ModeDelegate, a.Mode == "" && a.Key.IfName != runtimesName:
			return "", false
		case a.Mode == pod.ModeIPAM, len(a.Interfaces) == 0:
		case main == nil || main.Created.Before(a.Created):
			main = a
		}
	}
	if main == nil {
		return "", false
	}
	raw, err := json.MarshalIndent(statusesOf(main), "", "    ")
	return string(raw), err == nil
}

// statusesOf lists an attachment's interfaces, the pod's main one first: of another plugin's there is no more to say than
// its name.
func statusesOf(a *pod.Attachment) []networkStatus {
	var list []networkStatus
	if a.Mode == pod.ModeChained {
		list = append(list, networkStatus{Name: a.Key.Network, Interface: a.Key.IfName, Default: true})
	}
	for i := range a.Interfaces {
		in := &a.Interfaces[i]
		s := networkStatus{
			Name: cmp.Or(in.Definition, in.Network, pod.DefaultNetwork), Interface: in.Name, MAC: in.MAC, MTU: in.MTU, DeviceInfo: deviceInfoOf(in),
		}
		if in.Name == a.Key.IfName {
			s.Name, s.Default, s.DNS = a.Key.Network, true, statusDNS(a.Delegation.DNS)
		}
		for _, p := range in.Addresses {
			s.IPs = append(s.IPs, p.Addr())
		}
		for _, g := range in.Gateways {
			if g.IsValid() {
				s.Gateways = append(s.Gateways, g)
			}
		}
		list = append(list, s)
	}
	return list
}

// deviceInfoOf says how a memif is reached; nil for other types. The node makes the socket and the container connects: that
// is the role slave.
func deviceInfoOf(in *pod.Interface) *deviceInfo {
	if in.Memif == nil {
		return nil
	}
	return &deviceInfo{Type: pod.TypeMemif, Version: "1.1.0", Memif: &memifInfo{Role: "slave", Path: in.Memif.SocketPath, Mode: in.Memif.Mode}}
}

// ErrNoNetworkStatus means that a pod has no network-status annotation yet.
var ErrNoNetworkStatus = errors.New("no component has written its annotation " + AnnotationNetworkStatus)

// AddressesOn are the addresses of a pod's interface, as the annotation says.
func AddressesOn(annotations map[string]string, name string) ([]netip.Addr, error) {
	text, has := annotations[AnnotationNetworkStatus]
	if !has {
		return nil, ErrNoNetworkStatus
	}
	var told []struct {
		Interface string       `json:"interface"`
		IPs       []netip.Addr `json:"ips"`
	}
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		return nil, fmt.Errorf("its annotation %s: %w", AnnotationNetworkStatus, err)
	}
	for _, s := range told {
		if s.Interface == name {
			return s.IPs, nil
		}
	}
	return nil, fmt.Errorf("it has no interface %s", name)
}
