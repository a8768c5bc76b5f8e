// Package pods is this node's pods as the API server has them: it reads them by a watch, and writes what they got.
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

// Config is what [Pods] are made of. Node and Client are needed.
type Config struct {
	Node     string
	Client   *client.Client
	OnPod    func(ctx context.Context, id pod.ID, p *corev1.Pod) error // see nodeview.Config
	Question time.Duration                                             // bounds the one question to the API server that a pod may wait for
	Log      *slog.Logger
}

// Pods are those of this node.
type Pods struct {
	config   Config
	keys     workqueue.TypedRateLimitingInterface[string]
	informer *informer.Informer[*corev1.Pod]
}

// New makes pods of which none is known yet. Nothing is sent before Run.
func New(c Config) (ps *Pods, err error) {
	ps = &Pods{config: c}
	ofNode := informer.Options{Fields: fields.OneTermEqualSelector("spec.nodeName", c.Node).String()}
	ps.informer, err = informer.New[*corev1.Pod]("pods", c.Client.Pods(""), ofNode, func(key string) { ps.keys.Add(key) })
	if err != nil {
		return nil, err
	}
	return ps, ps.informer.LogErrors(c.Log)
}

// Run watches, and calls OnPod, until ctx ends.
func (ps *Pods) Run(ctx context.Context) error {
	ctx = informer.Quiet(ctx, ps.config.Log)
	ps.keys = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error {
		ps.informer.Run(ctx)
		return ctx.Err()
	})
	running.Go(func() error {
		<-ctx.Done()
		ps.keys.ShutDown()
		return ctx.Err()
	})
	running.Go(func() error {
		for ps.nextPod(ctx) {
			continue
		}
		return ctx.Err()
	})
	return running.Wait()
}

// Who gave a pod's annotations.
const (
	fromCache  = "cache"
	fromServer = "API server"
)

// mirror is the annotation by which kubelet marks the API server's copy of a static pod. Its value is the UID that
// kubelet and the runtime know the pod by; the copy itself has another one.
const mirror = "kubernetes.io/config.mirror"

// Pod finds a pod of this node that the watch has shown; nil: it has not, or not with that UID, or the pod is in the
// node's own network and none of ours.
func (ps *Pods) Pod(id pod.ID) *corev1.Pod {
	p, known := ps.informer.One(id.Namespace + "/" + id.Name)
	if !known || p.Spec.HostNetwork || !isPod(p, id.UID) {
		return nil
	}
	return p
}

// IsDeleted reports whether the API server says that a pod of this node is deleted, or was made anew with another UID. It asks the API
// server for pods that the watch does not show.
func (ps *Pods) IsDeleted(ctx context.Context, id pod.ID) (bool, error) {
	if p, known := ps.informer.One(id.Namespace + "/" + id.Name); known {
		return !isPod(p, id.UID), nil
	}
	ctx, cancel := context.WithTimeout(ctx, ps.config.Question)
	defer cancel()
	p, err := ps.config.Client.Pods(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get pod %s: %w", id, err)
	}
	return !isPod(p, id.UID), nil
}

// isPod reports whether p is the pod that the runtime knows by uid; "": it does not say.
func isPod(p *corev1.Pod, uid string) bool {
	return uid == "" || string(p.UID) == uid || p.Annotations[mirror] == uid
}

// Annotations gives a pod's annotations: from the watch, or, for a pod that it has not shown, by one question to the API
// server. From says who answered. Its errors are of code 11: the runtime asks again with the next sandbox.
func (ps *Pods) Annotations(ctx context.Context, id pod.ID) (annotations map[string]string, from string, err error) {
	if p := ps.Pod(id); p != nil {
		return p.Annotations, fromCache, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ps.config.Question)
	defer cancel()
	p, err := ps.config.Client.Pods(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", pod.Errorf(pod.CodeTryAgain, "annotations of pod %s: the API server knows no such pod: it was deleted, or runs without one", id)
	case err != nil:
		return nil, "", pod.Errorf(pod.CodeTryAgain, "annotations of pod %s: no answer of the API server within %v, and no watch has shown the pod: %w",
			id, ps.config.Question, client.OneLine(err))
	case !isPod(p, id.UID):
		return nil, "", pod.Errorf(pod.CodeTryAgain, "annotations of pod %s: it was made again: this sandbox is of UID %s, the pod of today has %s",
			id, id.UID, p.UID)
	case p.Spec.NodeName != "" && p.Spec.NodeName != ps.config.Node:
		return nil, "", pod.Errorf(pod.CodeTryAgain, "annotations of pod %s: it is on node %s, not on this one", id, p.Spec.NodeName)
	}
	return p.Annotations, fromServer, nil
}

// nextPod handles one pod that changed. What is handled is the pod as it is then, not the change.
func (ps *Pods) nextPod(ctx context.Context) bool {
	key, over := ps.keys.Get()
	if over {
		return false
	}
	defer ps.keys.Done(key)
	if err := ps.handlePod(ctx, key); err != nil {
		ps.config.Log.Warn("pod not handled, will be tried again", "pod", key, "err", err)
		ps.keys.AddRateLimited(key)
		return true
	}
	ps.keys.Forget(key)
	return true
}

// Annotated makes a [Config.OnPod] of what is to be called with the annotations of each pod that is new or changed, and with
// nil for one that is gone.
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

func (ps *Pods) handlePod(ctx context.Context, key string) error {
	if ps.config.OnPod == nil {
		return nil
	}
	namespace, name, _ := strings.Cut(key, "/")
	id := pod.ID{Namespace: namespace, Name: name}
	p, exists := ps.informer.One(key)
	if !exists {
		return ps.config.OnPod(ctx, id, nil)
	}
	if p.Spec.HostNetwork {
		return nil
	}
	if err := ps.config.OnPod(ctx, idOf(p), p); err != nil {
		return fmt.Errorf("pod %s: %w", key, err)
	}
	return nil
}

// Group is the group that the processes of a pod's container have: the pod's fsGroup, which all of them have beside their
// own, else the container's own. pod.UnknownGroup where neither is said, for an image's USER is in no API, or where the
// pod is not known.
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

// idOf names a pod as its runtime does, which knows static pods by a UID of kubelet's.
func idOf(p *corev1.Pod) pod.ID {
	id := pod.ID{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
	if own := p.Annotations[mirror]; own != "" {
		id.UID = own
	}
	return id
}
