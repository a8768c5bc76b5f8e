package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/pod"
)

// Annotator keeps an annotation of this node's pods up to date, asynchronously: it is notified of pods that may need another text, watches
// for changes by third parties, and retries until a pod has its text or is gone.
type Annotator struct {
	pods    *Pods
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
func (ps *Pods) NewAnnotator(name string, want func(id pod.ID) (text string, ours bool)) (*Annotator, error) {
	a := &Annotator{pods: ps, name: name, want: want, written: make(map[string]written)}
	a.keys = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](soonAgain, atLast))
	add := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			a.keys.Add(key)
		}
	}
	_, err := ps.informer.Shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
	log := a.pods.config.Log.Debug
	if a.keys.NumRequeues(key) == 0 {
		log = a.pods.config.Log.Warn
	}
	log("annotation not written, will be tried again until the pod is gone", "pod", key, "annotation", a.name, "err", err)
	a.keys.AddRateLimited(key)
	return true
}

// annotate writes a pod's annotation if it is not as it is to be. A pod that no watch shows needs none, or the watch will
// show it.
func (a *Annotator) annotate(ctx context.Context, key string) error {
	p, exists := a.pods.informer.One(key)
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
	ctx, cancel := context.WithTimeout(ctx, a.pods.config.Question)
	defer cancel()
	_, err = a.pods.config.Client.Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		a.written[key] = written{p.ResourceVersion, text}
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w (agents have that right by annotate.yaml, or annotatePods of the chart; kubernetes.networkStatus: false does without)", client.OneLine(err))
	}
	return client.OneLine(err)
}
