package nodeview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/weftnet/weft/k8s/api/v1"
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

// selectPods sets the pods of the permissions of a network, which is converted from o.
func (c *Cluster) selectPods(n *pod.Network, o []v1.Permission) error {
	for at := range n.Permissions {
		if !c.Pods.Synced() {
			n.Permissions[at].Pods = c.selectedBefore(n.Name, n.Permissions[at].Moving)
			continue
		}
		var err error
		if n.Permissions[at].Pods, err = c.selected(o[at]); err != nil {
			return fmt.Errorf("permissions: [%d]: %w", at, err)
		}
	}
	return nil
}

// selected lists the pods of this node that a permission selects.
func (c *Cluster) selected(o v1.Permission) ([]pod.ID, error) {
	selector, err := metav1.LabelSelectorAsSelector(&o.PodSelector)
	if err != nil {
		return nil, fmt.Errorf("podSelector: %w", err)
	}
	namespaces, err := c.namespacesOf(o.NamespaceSelector)
	if err != nil {
		return nil, err
	}
	ids := c.Pods.Labelled(func(namespace string, of map[string]string) bool {
		return (namespaces == nil || slices.Contains(namespaces, namespace)) && selector.Matches(labels.Set(of))
	})
	slices.SortFunc(ids, func(a, b pod.ID) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return ids, nil
}

// selectedBefore lists the pods that had a permission in the view of an earlier run: until the API server has shown the
// pods of this node, they keep it.
func (c *Cluster) selectedBefore(network string, moving pod.Moving) []pod.ID {
	if c.config.Known == nil {
		return nil
	}
	for _, n := range c.config.Known.Networks {
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

// onPod notifies the reader of the view if the labels of a pod may change a permission, and passes the pod on.
func (c *Cluster) onPod(ctx context.Context, id pod.ID, p *corev1.Pod) error {
	if c.relabelled(id, p) && c.hasPermissions() {
		c.poke("")
	}
	if c.config.OnPod == nil {
		return nil
	}
	return c.config.OnPod(ctx, id, p)
}

// relabelled reports whether a pod is new, gone or another one, or has other labels than at the last call.
func (c *Cluster) relabelled(id pod.ID, p *corev1.Pod) bool {
	name := id.String()
	if p == nil {
		delete(c.labelled, name)
		return true
	}
	was, isKnown := c.labelled[name]
	c.labelled[name] = labelled{id, p.Labels}
	return !isKnown || was.id != id || !maps.Equal(was.labels, p.Labels)
}

// labelled is a pod with its labels.
type labelled struct {
	id     pod.ID
	labels map[string]string
}

// hasPermissions reports whether a network has permissions.
func (c *Cluster) hasPermissions() bool {
	return slices.ContainsFunc(c.networks.All(), func(o *v1.CustomNetwork) bool { return len(o.Spec.Permissions) > 0 })
}

// awaitPods notifies the reader when the pods of this node are known, on which permissions depend.
func (c *Cluster) awaitPods(ctx context.Context) error {
	err := c.Pods.Await(ctx)
	if err == nil {
		c.poke("")
	}
	return err
}
