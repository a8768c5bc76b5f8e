package k8s

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/pod"
)

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
func (c *Cluster) Pod(id pod.ID) *corev1.Pod {
	p, known := c.pods.one(id.Namespace + "/" + id.Name)
	if !known || p.Spec.HostNetwork || !isPod(p, id.UID) {
		return nil
	}
	return p
}

// IsDeleted reports whether the API server says that a pod of this node is deleted, or was made anew with another UID. It asks the API
// server for pods that the watch does not show.
func (c *Cluster) IsDeleted(ctx context.Context, id pod.ID) (bool, error) {
	if p, known := c.pods.one(id.Namespace + "/" + id.Name); known {
		return !isPod(p, id.UID), nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Question)
	defer cancel()
	p, err := c.config.Client.Pods(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
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
func (c *Cluster) Annotations(ctx context.Context, id pod.ID) (annotations map[string]string, from string, err error) {
	if p := c.Pod(id); p != nil {
		return p.Annotations, fromCache, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Question)
	defer cancel()
	p, err := c.config.Client.Pods(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", pod.Errorf(pod.CodeTryAgain, "annotations of pod %s: the API server knows no such pod: it was deleted, or runs without one", id)
	case err != nil:
		return nil, "", pod.Errorf(pod.CodeTryAgain, "annotations of pod %s: no answer of the API server within %v, and no watch has shown the pod: %w",
			id, c.config.Question, oneLine{err})
	case !isPod(p, id.UID):
		return nil, "", pod.Errorf(pod.CodeTryAgain, "annotations of pod %s: it was made again: this sandbox is of UID %s, the pod of today has %s",
			id, id.UID, p.UID)
	case p.Spec.NodeName != "" && p.Spec.NodeName != c.config.Node:
		return nil, "", pod.Errorf(pod.CodeTryAgain, "annotations of pod %s: it is on node %s, not on this one", id, p.Spec.NodeName)
	}
	return p.Annotations, fromServer, nil
}

// oneLine is an error that a user sees as a part of one line.
type oneLine struct{ error }

// Error is the error without line ends.
func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }

// Unwrap gives the error as it was.
func (e oneLine) Unwrap() error { return e.error }

// nextPod handles one pod that changed. What is handled is the pod as it is then, not the change.
func (c *Cluster) nextPod(ctx context.Context) bool {
	key, over := c.keys.Get()
	if over {
		return false
	}
	defer c.keys.Done(key)
	if err := c.handlePod(ctx, key); err != nil {
		c.config.Log.Warn("pod not handled, will be tried again", "pod", key, "err", err)
		c.keys.AddRateLimited(key)
		return true
	}
	c.keys.Forget(key)
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

func (c *Cluster) handlePod(ctx context.Context, key string) error {
	if c.config.OnPod == nil {
		return nil
	}
	namespace, name, _ := strings.Cut(key, "/")
	id := pod.ID{Namespace: namespace, Name: name}
	p, exists := c.pods.one(key)
	if !exists {
		return c.config.OnPod(ctx, id, nil)
	}
	if p.Spec.HostNetwork {
		return nil
	}
	if err := c.config.OnPod(ctx, idOf(p), p); err != nil {
		return fmt.Errorf("pod %s: %w", key, err)
	}
	return nil
}
