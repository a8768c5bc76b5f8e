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
	"k8s.io/client-go/util/workqueue"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
)

// Annotator keeps an annotation of this node's pods up to date, asynchronously: it is notified of pods that may need
// another text, watches for changes by third parties, and retries until a pod has its text or is gone.
type Annotator struct {
	pods    *Pods
	name    string // of the annotation
	want    func(id pod.ID) (text string, ours bool)
	keys    workqueue.TypedRateLimitingInterface[string]
	written map[string]written // by pod, until the watch shows it; only Run uses it

	withdrawn sync.Map // by pod, its obsolete text
}

// written is a text with the version of the pod before the write.
type written struct{ over, text string }

// NewAnnotator makes an annotator. Want returns the annotation of a pod; false: the annotation is not Weft's.
func (ps *Pods) NewAnnotator(name string, want func(id pod.ID) (text string, ours bool)) *Annotator {
	a := &Annotator{pods: ps, name: name, want: want, written: make(map[string]written)}
	a.keys = informer.NewQueue[string](200*time.Millisecond, 5*time.Minute)
	ps.informer.OnChange(func(key string) { a.keys.Add(key) })
	return a
}

// Tell says that a pod may need another text. It does not block.
func (a *Annotator) Tell(id pod.ID) {
	if !id.IsZero() {
		a.keys.Add(id.String())
	}
}

// Withdraw empties an obsolete annotation of a pod that stays, such as a pod of a finished Job: if the pod still has
// this text, and want has no other one. It does not block.
func (a *Annotator) Withdraw(id pod.ID, text string) {
	if !id.IsZero() {
		a.withdrawn.Store(id.String(), text)
		a.keys.Add(id.String())
	}
}

// Run writes until ctx ends.
func (a *Annotator) Run(ctx context.Context) error {
	return informer.Work(ctx, a.keys, func(ctx context.Context, key string) error {
		err := a.annotate(ctx, key)
		if err != nil {
			log := a.pods.config.Log.Debug
			if a.keys.NumRequeues(key) == 0 {
				log = a.pods.config.Log.Warn
			}
			log("annotation not written, retrying until the pod is gone", "pod", key, "annotation", a.name, "err", err)
		}
		return err
	})
}

// annotate writes a pod's annotation if it differs. A pod that the watch does not show is gone, or will be shown.
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
		ours = true // without a text
	}
	if a.written[key] == (written{p.ResourceVersion, text}) {
		return nil
	}
	delete(a.written, key)
	if !ours || has && was == text {
		return nil
	}
	// The UID makes the API server refuse another pod of the same name.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID, "annotations": map[string]string{a.name: text}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.pods.config.Question)
	defer cancel()
	_, err = a.pods.config.Client.Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	switch {
	case err == nil:
		a.written[key] = written{p.ResourceVersion, text}
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf(
			"%w (annotate.yaml, or annotatePods of the chart, gives agents the right; with kubernetes.networkStatus: false they do not need it)",
			client.OneLine(err))
	}
	return client.OneLine(err)
}
