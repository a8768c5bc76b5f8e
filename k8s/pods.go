package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

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

// Group is the group that the processes of a pod's container have: the pod's fsGroup, which all of them have beside their
// own, else the container's own. pod.UnknownGroup where neither is said, for an image's USER is in no API, or where the
// pod is not known.
func (c *Cluster) Group(id pod.ID, container string) int {
	p := c.Pod(id)
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

// Definition gives the NetworkAttachmentDefinition that a pod selects: from the watch, from an earlier run while the API
// server has not shown all, or, where neither knows it, by one question to the API server. Its errors are of code 102, or
// 11: the runtime asks again with the next sandbox.
func (c *Cluster) Definition(ctx context.Context, s pod.Selection) (Definition, error) {
	if d, known := c.definitions.one(s.Definition()); known {
		return Definition{Config: d.Spec.Config}, nil
	}
	if c.config.Known != nil && !c.definitions.synced() {
		if d, known := c.config.Known.Definitions[s.Definition()]; known {
			return d, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Question)
	defer cancel()
	d, err := c.config.Client.Definitions(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Definition{}, pod.Errorf(pod.CodeUnknownNetwork, "there is no NetworkAttachmentDefinition %s", s.Definition())
	case err != nil:
		return Definition{}, pod.Errorf(pod.CodeTryAgain, "NetworkAttachmentDefinition %s: no answer of the API server within %v, and no watch has shown it: %w",
			s.Definition(), c.config.Question, oneLine{err})
	}
	return Definition{Config: d.Spec.Config}, nil
}

// Annotator keeps an annotation of this node's pods up to date, asynchronously: it is notified of pods that may need another text, watches
// for changes by third parties, and retries until a pod has its text or is gone.
type Annotator struct {
	cluster *Cluster
	name    string // of the annotation
	want    func(id pod.ID) (text string, ours bool)
	keys    workqueue.TypedRateLimitingInterface[string]
	written map[string]written // by pod, until the watch shows it; Run's

	withdrawn sync.Map // by pod, the text that is true no more
}

// written is a text that was written over a version of a pod.
type written struct{ over, text string }

// Times between tries of one pod.
const (
	soonAgain = 200 * time.Millisecond
	atLast    = 5 * time.Minute
)

// NewAnnotator makes an annotator. Want says what the annotation of a pod is to be; false: it is not Weft's.
func (c *Cluster) NewAnnotator(name string, want func(id pod.ID) (text string, ours bool)) (*Annotator, error) {
	a := &Annotator{cluster: c, name: name, want: want, written: make(map[string]written)}
	a.keys = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](soonAgain, atLast))
	add := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			a.keys.Add(key)
		}
	}
	_, err := c.pods.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, o any) { add(o) }, DeleteFunc: add, // of which nothing need be known any more
	})
	return a, err
}

// Tell says that a pod may need another text. It does not wait.
func (a *Annotator) Tell(id pod.ID) {
	if !id.IsZero() {
		a.keys.Add(id.String())
	}
}

// Withdraw says that a text of a pod is true no more: if the pod stays, as one of a Job does that has ended, and has this very
// text and is to have no other one, it gets an empty one. It does not wait.
func (a *Annotator) Withdraw(id pod.ID, text string) {
	if !id.IsZero() {
		a.withdrawn.Store(id.String(), text)
		a.keys.Add(id.String())
	}
}

// Run writes until ctx ends.
func (a *Annotator) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, a.keys.ShutDown)
	defer stop()
	for a.next(ctx) {
		continue
	}
	return ctx.Err()
}

func (a *Annotator) next(ctx context.Context) bool {
	key, over := a.keys.Get()
	if over {
		return false
	}
	defer a.keys.Done(key)
	err := a.annotate(ctx, key)
	if err == nil {
		a.keys.Forget(key)
		return true
	}
	log := a.cluster.config.Log.Debug
	if a.keys.NumRequeues(key) == 0 {
		log = a.cluster.config.Log.Warn
	}
	log("annotation not written, will be tried again until the pod is gone", "pod", key, "annotation", a.name, "err", err)
	a.keys.AddRateLimited(key)
	return true
}

// annotate writes a pod's annotation if it is not as it is to be. A pod that no watch shows needs none, or the watch will
// show it.
func (a *Annotator) annotate(ctx context.Context, key string) error {
	p, exists := a.cluster.pods.one(key)
	if !exists || p.Spec.HostNetwork {
		delete(a.written, key)
		a.withdrawn.Delete(key)
		return nil
	}
	text, ours := a.want(idOf(p))
	was, has := p.Annotations[a.name]
	if old, is := a.withdrawn.Load(key); is && !ours && has && was == old && p.DeletionTimestamp == nil {
		ours = true // and there is no text
	}
	if a.written[key] == (written{p.ResourceVersion, text}) {
		return nil
	}
	delete(a.written, key)
	if !ours || has && was == text {
		return nil
	}
	// With the UID the API server refuses to annotate a pod that was made again.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "annotations": map[string]string{a.name: text}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cluster.config.Question)
	defer cancel()
	_, err = a.cluster.config.Client.Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		a.written[key] = written{p.ResourceVersion, text}
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w (agents have that right by annotate.yaml, or annotatePods of the chart; kubernetes.networkStatus: false does without)", oneLine{err})
	}
	return oneLine{err}
}

// idOf names a pod as its runtime does, which knows static pods by a UID of kubelet's.
func idOf(p *corev1.Pod) pod.ID {
	id := pod.ID{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
	if own := p.Annotations[mirror]; own != "" {
		id.UID = own
	}
	return id
}
