package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/pod"
)

// Report is the content of a pod's PodInterfaces.
type Report struct {
	Pod        pod.ID
	Sandbox    string
	Interfaces []v1.PodInterface
}

// Reporter writes the PodInterfaces of a node's pods. One goroutine uses it.
type Reporter struct {
	pods  *Pods
	there map[string]*v1.PodInterfaces // of this node, by namespace/name, as last read or written; nil: unknown
}

// NewReporter makes a reporter.
func (ps *Pods) NewReporter() *Reporter { return &Reporter{pods: ps} }

// Forget makes the next report read the objects first, because a third party may have changed them.
func (r *Reporter) Forget() { r.there = nil }

// Report writes missing and different objects, and removes the others of this node. It fails until the API server has
// shown all pods. Call it again after an error.
func (r *Reporter) Report(ctx context.Context, reports []Report) error {
	if !r.pods.informer.Synced() {
		return errors.New("report PodInterfaces: the API server has not shown this node's pods yet")
	}
	if err := r.read(ctx); err != nil {
		return err
	}
	wanted := make(map[string]*v1.PodInterfaces)
	var errs []error
	for _, report := range reports {
		p := r.pods.Pod(report.Pod)
		if p == nil {
			continue // the pod is gone or has another UID; its sandbox will be deleted
		}
		o := &v1.PodInterfaces{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.Namespace,
				Name:      p.Name,
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
				},
			},
		}
		o.Node = v1.NodeName(r.pods.config.Node)
		o.PodUID = string(p.UID)
		o.Sandbox = report.Sandbox
		o.Interfaces = report.Interfaces
		o.Summary = summaryOf(report.Interfaces)
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

// read reads the objects of this node, unless they are known.
func (r *Reporter) read(ctx context.Context) error {
	if r.there != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	list, err := r.pods.config.Client.PodInterfaces("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("node", r.pods.config.Node).String(),
	})
	if err != nil {
		return fmt.Errorf("list PodInterfaces: %w", client.OneLine(err))
	}
	r.there = make(map[string]*v1.PodInterfaces, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		r.there[o.Namespace+"/"+o.Name] = o
	}
	return nil
}

// write creates or updates an object.
func (r *Reporter) write(ctx context.Context, o *v1.PodInterfaces) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	key := o.Namespace + "/" + o.Name
	store := r.pods.config.Client.PodInterfaces(o.Namespace)
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
		o.ResourceVersion = had.ResourceVersion
		o.UID = had.UID
		written, err = store.Update(ctx, o, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write PodInterfaces %s: %w", key, client.OneLine(err))
	}
	r.there[key] = written
	return nil
}

func alike(x, y *v1.PodInterfaces) bool {
	return x.Node == y.Node && x.PodUID == y.PodUID && x.Sandbox == y.Sandbox &&
		x.Summary == y.Summary && equality.Semantic.DeepEqual(x.Interfaces, y.Interfaces) &&
		equality.Semantic.DeepEqual(x.OwnerReferences, y.OwnerReferences)
}

// remove deletes an object in the version that was seen: the object may belong to another node by now.
func (r *Reporter) remove(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	o := r.there[key]
	err := r.pods.config.Client.PodInterfaces(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete PodInterfaces %s: %w", key, client.OneLine(err))
	}
	delete(r.there, key)
	return nil
}
