// Package pods reads this node's pods from the API server by a watch, and writes what interfaces they have.
package pods

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
)

// Config configures [Pods]; see nodeview.Config.
type Config struct {
	Node     string
	Client   *client.Client
	OnPod    func(ctx context.Context, id pod.ID, p *corev1.Pod) error
	Question time.Duration
	Log      *slog.Logger
}

// Pods are the pods of this node.
type Pods struct {
	config   Config
	keys     workqueue.TypedRateLimitingInterface[string]
	watches  *informer.Group
	informer *informer.Informer[*corev1.Pod]
}

// New makes pods that knows none yet. It sends nothing before Run.
func New(c Config) *Pods {
	ps := &Pods{config: c, watches: informer.NewGroup(c.Log)}
	ps.informer = informer.Add(ps.watches, "pods", c.Client.Pods(""), informer.Options[*corev1.Pod]{
		Fields:  fields.OneTermEqualSelector("spec.nodeName", c.Node).String(),
		Changed: func(key string) { ps.keys.Add(key) },
	})
	return ps
}

// Run watches, and calls OnPod, until ctx ends.
func (ps *Pods) Run(ctx context.Context) error {
	ps.keys = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return ps.watches.Run(ctx) })
	running.Go(func() error { return informer.Work(ctx, ps.keys, ps.handle) })
	return running.Wait()
}

// mirror is kubelet's annotation on the API server's copy of a static pod. Its value is the pod's UID for kubelet and
// the runtime; the copy has another UID.
const mirror = "kubernetes.io/config.mirror"

// Pod returns a pod of this node; nil if the watch has not shown it, if it has another UID, or if it uses the node's
// network namespace.
func (ps *Pods) Pod(id pod.ID) *corev1.Pod {
	p, known := ps.informer.One(id.Namespace + "/" + id.Name)
	if !known || p.Spec.HostNetwork || !isPod(p, id.UID) {
		return nil
	}
	return p
}

// Synced reports whether the API server has shown all pods of this node once.
func (ps *Pods) Synced() bool { return ps.informer.Synced() }

// Await waits until Synced.
func (ps *Pods) Await(ctx context.Context) error { return ps.watches.Await(ctx, func([]string) {}) }

// Labelled lists the pods of this node with a network namespace of their own that isSelected selects, by their
// namespaces and labels.
func (ps *Pods) Labelled(isSelected func(namespace string, labels map[string]string) bool) []pod.ID {
	var ids []pod.ID
	for _, p := range ps.informer.All() {
		if !p.Spec.HostNetwork && isSelected(p.Namespace, p.Labels) {
			ids = append(ids, idOf(p))
		}
	}
	return ids
}

// get reads a pod from the API server.
func (ps *Pods) get(ctx context.Context, id pod.ID) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, ps.config.Question)
	defer cancel()
	return ps.config.Client.Pods(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
}

// IsDeleted reports whether a pod of this node is deleted or has another UID. It asks the API server for pods that the
// watch does not show.
func (ps *Pods) IsDeleted(ctx context.Context, id pod.ID) (bool, error) {
	p, known := ps.informer.One(id.Namespace + "/" + id.Name)
	if !known {
		var err error
		switch p, err = ps.get(ctx, id); {
		case apierrors.IsNotFound(err):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("get pod %s: %w", id, err)
		}
	}
	return !isPod(p, id.UID), nil
}

// isPod reports whether the runtime knows p by uid; "" means any.
func isPod(p *corev1.Pod, uid string) bool {
	return uid == "" || string(p.UID) == uid || p.Annotations[mirror] == uid
}

// Annotations returns a pod's annotations: from the watch, else by one request to the API server; from names the
// source. Its errors have code 11: the runtime retries with the next sandbox.
func (ps *Pods) Annotations(ctx context.Context, id pod.ID) (annotations map[string]string, from string, err error) {
	if p := ps.Pod(id); p != nil {
		return p.Annotations, "cache", nil
	}
	p, err := ps.get(ctx, id)
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", pod.Errorf(pod.CodeTryAgain,
			"annotations of pod %s: the API server knows no such pod: it was deleted, or is not a pod of this cluster",
			id)
	case err != nil:
		return nil, "", pod.Errorf(pod.CodeTryAgain,
			"annotations of pod %s: no answer of the API server within %v, and no watch has shown the pod: %w",
			id, ps.config.Question, client.OneLine(err))
	case !isPod(p, id.UID):
		return nil, "", pod.Errorf(pod.CodeTryAgain,
			"annotations of pod %s: the pod was created again: this sandbox has UID %s, the current pod %s",
			id, id.UID, p.UID)
	case p.Spec.NodeName != "" && p.Spec.NodeName != ps.config.Node:
		return nil, "", pod.Errorf(pod.CodeTryAgain, "annotations of pod %s: it is on node %s, not on this one", id,
			p.Spec.NodeName)
	}
	return p.Annotations, "API server", nil
}

// SetOf returns the StatefulSet of a pod of this node: from the watch, else by one request to the API server. Its
// errors have code 103, or 11: the runtime retries with the next sandbox.
func (ps *Pods) SetOf(ctx context.Context, id pod.ID) (StatefulSet, error) {
	p := ps.Pod(id)
	if p == nil {
		var err error
		p, err = ps.get(ctx, id)
		switch {
		case apierrors.IsNotFound(err) || err == nil && !isPod(p, id.UID):
			return StatefulSet{}, pod.Errorf(pod.CodeTryAgain,
				"controller of pod %s: the API server knows no such pod: it was deleted, or is not a pod of this cluster",
				id)
		case err != nil:
			return StatefulSet{}, pod.Errorf(pod.CodeTryAgain,
				"controller of pod %s: no answer of the API server within %v, and no watch has shown the pod: %w", id,
				ps.config.Question, client.OneLine(err))
		}
	}
	set, err := SetOf(p)
	if err != nil {
		return set, pod.Errorf(pod.CodeInvalidAnnotation, "%w", err)
	}
	return set, nil
}

// handle calls OnPod with the current state of a pod.
func (ps *Pods) handle(ctx context.Context, key string) error {
	if ps.config.OnPod == nil {
		return nil
	}
	namespace, name, _ := strings.Cut(key, "/")
	id := pod.ID{Namespace: namespace, Name: name}
	p, exists := ps.informer.One(key)
	if exists {
		if p.Spec.HostNetwork {
			return nil
		}
		id = idOf(p)
	}
	err := ps.config.OnPod(ctx, id, p)
	if err != nil {
		ps.config.Log.Warn("pod not handled, retrying", "pod", key, "err", err)
	}
	return err
}

// Annotated converts f to a [Config.OnPod]. It calls f with the annotations of each pod that is new or changed, and
// with nil for one that is gone.
func Annotated(f func(id pod.ID, annotations map[string]string)) func(context.Context, pod.ID, *corev1.Pod) error {
	return func(_ context.Context, id pod.ID, p *corev1.Pod) error {
		switch {
		case p == nil:
			f(id, nil)
		case p.Annotations == nil:
			f(id, map[string]string{})
		default:
			f(id, p.Annotations)
		}
		return nil
	}
}

// Group returns a group that all processes of a container have: the pod's fsGroup, else the container's own. It returns
// pod.UnknownGroup if the pod is unknown, or has neither: the API does not have the USER of an image.
func (ps *Pods) Group(id pod.ID, container string) int {
	p := ps.Pod(id)
	if p == nil {
		return pod.UnknownGroup
	}
	own := p.Spec.SecurityContext
	if own != nil && own.FSGroup != nil {
		return int(*own.FSGroup)
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			s := list[i].SecurityContext
			if list[i].Name == container && s != nil && s.RunAsGroup != nil {
				return int(*s.RunAsGroup)
			}
		}
	}
	if own != nil && own.RunAsGroup != nil {
		return int(*own.RunAsGroup)
	}
	return pod.UnknownGroup
}

// idOf identifies a pod like the runtime, which has kubelet's UID of static pods.
func idOf(p *corev1.Pod) pod.ID {
	id := pod.ID{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
	if own := p.Annotations[mirror]; own != "" {
		id.UID = own
	}
	return id
}
