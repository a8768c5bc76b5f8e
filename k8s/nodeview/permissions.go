package nodeview

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
)

// permissionsOf converts the permissions of a network without their pods.
func permissionsOf(list []v1.Permission) ([]pod.Permission, error) {
	var permissions []pod.Permission
	for at, o := range list {
		p, err := permissionOf(o)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", at, err)
		}
		permissions = append(permissions, p)
	}
	return permissions, nil
}

func permissionOf(o v1.Permission) (p pod.Permission, err error) {
	for _, text := range o.AllowedAddresses {
		prefix, err := pod.ParseAddress(string(text))
		if err != nil {
			return p, fmt.Errorf("allowedAddresses: %w", err)
		}
		p.Moving.Addresses = append(p.Moving.Addresses, prefix)
	}
	for _, id := range o.VirtualRouters {
		p.Moving.VirtualRouters = append(p.Moving.VirtualRouters, int(id))
	}
	if _, err := metav1.LabelSelectorAsSelector(&o.PodSelector); err != nil {
		return p, fmt.Errorf("podSelector: %w", err)
	}
	if _, err := metav1.LabelSelectorAsSelector(o.NamespaceSelector); err != nil {
		return p, fmt.Errorf("namespaceSelector: %w", err)
	}
	return p, nil
}

// permissions finds the pods of this node that the permissions of networks select.
type permissions struct {
	config     *Config
	pods       *pods.Pods
	namespaces *namespaces
	labelled   map[string]labelled // pods of this node by name, as relabelled saw them
}

// selectPods sets the pods of the permissions of a network, which is converted from o.
func (ps *permissions) selectPods(n *pod.Network, o []v1.Permission) error {
	for at := range n.Permissions {
		if !ps.pods.Synced() {
			n.Permissions[at].Pods = ps.selectedBefore(n.Name, n.Permissions[at].Moving)
			continue
		}
		var err error
		if n.Permissions[at].Pods, err = ps.selected(o[at]); err != nil {
			return fmt.Errorf("permissions: [%d]: %w", at, err)
		}
	}
	return nil
}

// selected lists the pods of this node that a permission selects.
func (ps *permissions) selected(o v1.Permission) ([]pod.ID, error) {
	selector, err := metav1.LabelSelectorAsSelector(&o.PodSelector)
	if err != nil {
		return nil, fmt.Errorf("podSelector: %w", err)
	}
	namespaces, err := ps.namespaces.selectedBy(o.NamespaceSelector)
	if err != nil {
		return nil, err
	}
	ids := ps.pods.Labelled(func(namespace string, of map[string]string) bool {
		return (namespaces == nil || slices.Contains(namespaces, namespace)) && selector.Matches(labels.Set(of))
	})
	slices.SortFunc(ids, func(a, b pod.ID) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return ids, nil
}

// selectedBefore lists the pods that had a permission in the view of an earlier run: until the API server has shown the
// pods of this node, they keep it.
func (ps *permissions) selectedBefore(network string, moving pod.Moving) []pod.ID {
	if ps.config.Known == nil {
		return nil
	}
	for _, n := range ps.config.Known.Networks {
		if n.Name != network {
			continue
		}
		for _, p := range n.Permissions {
			if reflect.DeepEqual(p.Moving, moving) {
				return p.Pods
			}
		}
	}
	return nil
}

// relabelled reports whether a pod is new, gone or another one, or has other labels than at the last call.
func (ps *permissions) relabelled(id pod.ID, p *corev1.Pod) bool {
	name := id.String()
	if p == nil {
		delete(ps.labelled, name)
		return true
	}
	was, isKnown := ps.labelled[name]
	ps.labelled[name] = labelled{id, p.Labels}
	return !isKnown || was.id != id || !maps.Equal(was.labels, p.Labels)
}

// labelled is a pod with its labels.
type labelled struct {
	id     pod.ID
	labels map[string]string
}
