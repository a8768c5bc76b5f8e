// Package endpoints keeps the EndpointSlices of Services that select pods by an annotation, with the addresses of an
// interface that the pods name. Kubernetes makes no slices for a Service without a selector. Except for the addresses,
// these slices are like Kubernetes' own.
package endpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
)

// gather is the time for which changes of a Service and its pods are gathered: they come in bursts.
const gather = 100 * time.Millisecond

// Keeper keeps the EndpointSlices of all Services that ask for them. One keeper in a cluster is enough; two do the same
// work twice.
type Keeper struct {
	// Observe is told of each reconciliation of a Service, with the addresses in all slices that are kept. Optional,
	// set before Run.
	Observe func(took time.Duration, addresses int, err error)

	client   *client.Client
	log      *slog.Logger
	backends *backends
	services workqueue.TypedRateLimitingInterface[types.NamespacedName]
	told     map[types.NamespacedName][]string // by Service, the causes of its Events
	counts   map[types.NamespacedName]int      // by Service, the addresses in its slices
}

// NewKeeper makes a keeper, which runs once. It sends nothing before Run.
func NewKeeper(client *client.Client, log *slog.Logger) *Keeper {
	k := &Keeper{
		client: client,
		log:    log,
		told:   make(map[types.NamespacedName][]string),
		counts: make(map[types.NamespacedName]int),
	}
	k.Observe = func(time.Duration, int, error) {}
	k.services = informer.NewQueue[types.NamespacedName](200*time.Millisecond, time.Minute)
	k.backends = newBackends(backendsConfig{
		Client: client, ManagedBy: managedBy, Asks: asks, Marks: pod.AnnotationEndpoint, Log: log,
		Changed: func(service types.NamespacedName) { k.services.AddAfter(service, gather) },
	})
	return k
}

// Run keeps slices until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, k.services.ShutDown)
	defer stop()
	group.Go(func() error { return k.backends.Run(ctx) })
	group.Go(func() error {
		defer k.backends.Close()
		err := k.backends.Await(ctx, func([]string) { // a missing Service or slice would count as deleted
			k.log.Warn("the API server does not show Services and EndpointSlices (endpoints.yaml gives the right)")
		})
		if err != nil {
			return err
		}
		return informer.Work(ctx, k.services, k.handle)
	})
	return group.Wait()
}

func (k *Keeper) handle(ctx context.Context, id types.NamespacedName) error {
	began := time.Now()
	seen, err := k.look(ctx, id)
	k.Observe(time.Since(began), k.addresses(), err)
	switch {
	case err != nil:
		log := k.log.Debug
		if k.services.NumRequeues(id) == 0 {
			log = k.log.Warn
		}
		log("endpoints not written, retrying", "service", id.String(), "err", err)
	case !seen:
		k.services.AddAfter(id, gather)
	}
	return err
}

// count keeps the number of addresses in the slices of a Service.
func (k *Keeper) count(id types.NamespacedName, want []*discovery.EndpointSlice) {
	delete(k.counts, id)
	for _, s := range want {
		for _, e := range s.Endpoints {
			k.counts[id] += len(e.Addresses)
		}
	}
}

func (k *Keeper) addresses() int {
	sum := 0
	for _, n := range k.counts {
		sum += n
	}
	return sum
}

// look updates the slices of a Service. Until the watch has shown its pods it has no effect and seen is false.
func (k *Keeper) look(ctx context.Context, id types.NamespacedName) (seen bool, err error) {
	s := k.backends.Service(id)
	have := k.backends.Slices(id)
	if s == nil || !asks(s) {
		k.backends.Forget(id)
		k.count(id, nil)
		k.tellIgnored(ctx, id, s)
		return true, k.write(ctx, have, nil)
	}
	selector, fault := Selector(s)
	if fault != nil {
		k.backends.Forget(id)
		k.count(id, nil)
		k.tell(ctx, s, []string{fault.Error()})
		return true, k.write(ctx, have, nil)
	}
	pods, seen := k.backends.Pods(ctx, id, selector)
	if !seen {
		return false, nil
	}
	groups, faults := groupsOf(s, pods)
	want := slicesOf(s, groups, have)
	k.count(id, want)
	err = k.write(ctx, have, want)
	if foreign := foreignError(""); errors.As(err, &foreign) { // retried: no watch shows its removal
		faults = append(faults, foreign.Error())
	}
	k.tell(ctx, s, faults)
	return true, err
}

// write creates, updates and deletes slices.
func (k *Keeper) write(ctx context.Context, have, want []*discovery.EndpointSlice) error {
	var errs []error
	for _, s := range want {
		existing := sliceNamed(have, s.Name)
		switch {
		case existing == nil:
			errs = append(errs, k.create(ctx, s))
		case !equality.Semantic.DeepEqual(existing, s):
			errs = append(errs, k.update(ctx, s))
		}
	}
	for _, s := range have {
		if sliceNamed(want, s.Name) == nil {
			errs = append(errs, k.remove(ctx, s))
		}
	}
	return errors.Join(errs...)
}

// foreignError means that the slice of that name belongs to a third party.
type foreignError string

// Error says what to do.
func (e foreignError) Error() string {
	return "EndpointSlice " + string(e) + " has another owner: remove it"
}

func (k *Keeper) create(ctx context.Context, s *discovery.EndpointSlice) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	in := k.client.EndpointSlices(s.Namespace)
	_, err := in.Create(ctx, s, metav1.CreateOptions{})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsAlreadyExists(err):
		there, why := in.Get(ctx, s.Name, metav1.GetOptions{})
		if why == nil && there.Labels[discovery.LabelManagedBy] != managedBy {
			return foreignError(s.Name)
		}
	}
	return wrap("create", s, err)
}

func (k *Keeper) update(ctx context.Context, s *discovery.EndpointSlice) error {
	_, err := client.Bounded(ctx, k.client.EndpointSlices(s.Namespace).Update, s, metav1.UpdateOptions{})
	return wrap("update", s, err)
}

func (k *Keeper) remove(ctx context.Context, s *discovery.EndpointSlice) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	err := k.client.EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion},
	})
	return wrap("delete", s, err)
}

// wrap adds the operation to an error. A conflict is no error: the watch shows the other write.
func wrap(doing string, s *discovery.EndpointSlice, err error) error {
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s EndpointSlice %s: %w", doing, s.Name, err)
}
