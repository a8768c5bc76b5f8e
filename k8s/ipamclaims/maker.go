// Package ipamclaims makes the IPAMClaims of StatefulSets' pods for interfaces with the option persistentIPs. Agents
// have no right to: with it, a compromised node could hold the addresses of any network.
package ipamclaims

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
)

// reasonNotMade is the reason of the Event on a StatefulSet.
const reasonNotMade = "WeftIPAMClaimNotMade"

// replicaLabel is the label that Kubernetes puts on the pods of StatefulSets.
const replicaLabel = "statefulset.kubernetes.io/pod-name"

// mainInterface is the name of pods' main interfaces in runtimes.
const mainInterface = "eth0"

// managedBy marks the claims that the maker makes.
const managedBy = "weft-controller"

// settle is the time after which a claim that is gone is made again: of a deleted StatefulSet the API server deletes
// claims and pods one after another.
const settle = time.Second

// Maker makes the claims. One maker in a cluster is enough; two do the same work twice. It deletes no claim: each has
// its StatefulSet as owner, with which the API server deletes it.
type Maker struct {
	client      *client.Client
	log         *slog.Logger
	watches     *informer.Group
	pods        *informer.Informer[*metav1.PartialObjectMetadata]
	definitions *informer.Informer[*npwg.NetworkAttachmentDefinition]
	claims      *informer.Informer[*npwg.IPAMClaim]
	keys        workqueue.TypedRateLimitingInterface[string]
	limit       flowcontrol.RateLimiter // of Events
}

// byDefinition is the index of pods by the NetworkAttachmentDefinitions that they select.
const byDefinition = "definition"

// NewMaker returns a maker for one Run. It sends no request before Run.
func NewMaker(client *client.Client, log *slog.Logger) *Maker {
	m := &Maker{client: client, log: log, watches: informer.NewGroup(log), limit: events.NewLimit()}
	m.keys = informer.NewQueue[string](time.Second, time.Minute)
	m.pods = informer.Add(m.watches, "metadata of the pods of StatefulSets", client.PodMetadata(),
		informer.Options[*metav1.PartialObjectMetadata]{
			Labels: replicaLabel, Lighten: lightenPod, Changed: func(key string) { m.keys.Add(key) },
		})
	m.pods.Index(byDefinition, definitionsOf)
	m.definitions = informer.Add(m.watches, "network attachment definitions", client.Definitions(""),
		informer.Options[*npwg.NetworkAttachmentDefinition]{Optional: true, Changed: m.definitionChanged})
	m.claims = informer.Add(m.watches, "IPAM claims", client.IPAMClaims(""),
		informer.Options[*npwg.IPAMClaim]{Optional: true, Lighten: lightenClaim, Changed: m.claimChanged})
	return m
}

// lightenPod keeps the fields of a pod that the maker reads.
func lightenPod(p *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	light := &metav1.PartialObjectMetadata{}
	light.Namespace = p.Namespace
	light.Name = p.Name
	light.UID = p.UID
	light.ResourceVersion = p.ResourceVersion
	light.DeletionTimestamp = p.DeletionTimestamp
	light.OwnerReferences = p.OwnerReferences
	for _, name := range []string{pod.AnnotationCustom, pod.AnnotationOptions, pod.AnnotationNetworks} {
		if text, has := p.Annotations[name]; has {
			metav1.SetMetaDataAnnotation(&light.ObjectMeta, name, text)
		}
	}
	return light
}

// lightenClaim keeps the identity of a claim.
func lightenClaim(c *npwg.IPAMClaim) *npwg.IPAMClaim {
	light := &npwg.IPAMClaim{}
	light.Namespace = c.Namespace
	light.Name = c.Name
	light.UID = c.UID
	light.ResourceVersion = c.ResourceVersion
	return light
}

func definitionsOf(p *metav1.PartialObjectMetadata) (names []string) {
	selections, _ := pod.Selections(p.Annotations, p.Namespace) // the agent reports errors
	for _, s := range selections {
		names = append(names, s.Definition())
	}
	return names
}

func (m *Maker) definitionChanged(key string) {
	for _, p := range m.pods.ByIndex(byDefinition, key) {
		m.keys.Add(p.Namespace + "/" + p.Name)
	}
}

// claimChanged checks the pod of a claim that may be gone.
func (m *Maker) claimChanged(key string) {
	if at := strings.LastIndexByte(key, '.'); at > 0 {
		m.keys.AddAfter(key[:at], settle)
	}
}

// Run makes claims until ctx ends.
func (m *Maker) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, m.keys.ShutDown)
	defer stop()
	group.Go(func() error { return m.watches.Run(ctx) })
	group.Go(func() error {
		err := m.watches.Await(ctx, func([]string) {
			m.log.Warn("the API server does not show pods, IPAMClaims and NetworkAttachmentDefinitions " +
				"(persistent-ips.yaml gives the right)")
		})
		if err != nil {
			return err
		}
		return informer.Work(ctx, m.keys, m.handle)
	})
	return group.Wait()
}

// handle makes the missing claims of a pod.
func (m *Maker) handle(ctx context.Context, key string) error {
	p, exists := m.pods.One(key)
	if !exists || p.DeletionTimestamp != nil {
		return nil
	}
	set, err := pods.SetOf(p)
	if err != nil {
		return nil //nolint:nilerr // the agent refuses the pod
	}
	for _, r := range m.requests(p) {
		claim := claimFor(p, set, r)
		if _, made := m.claims.One(claim.Namespace + "/" + claim.Name); made {
			continue
		}
		if err := m.create(ctx, claim); err != nil {
			m.tell(ctx, claim, set, err)
			return err // the other claims of the pod would fail too, and those of other pods wait
		}
	}
	return nil
}

// requests returns the interfaces of a pod with the option persistentIPs. The agent reports invalid ones.
func (m *Maker) requests(p *metav1.PartialObjectMetadata) (persistent []pod.InterfaceRequest) {
	requests, _ := pod.InterfaceRequests(p.Annotations, mainInterface)
	selections, _ := pod.Selections(p.Annotations, p.Namespace)
	for _, s := range selections {
		definition, known := m.definitions.One(s.Definition())
		if !known {
			continue
		}
		if d, err := pod.ParseDefinition(definition.Spec.Config); err == nil {
			requests = append(requests, d.Request(s))
		}
	}
	for _, r := range requests {
		if r.Options.PersistentIPs && pod.IsLabel(r.Name) {
			persistent = append(persistent, r)
		}
	}
	return persistent
}

// claimFor returns the claim of an interface. Of the annotation the MAC of the interface is derived, so that it is the
// same after a user deleted the claim.
func claimFor(p *metav1.PartialObjectMetadata, set pods.StatefulSet, r pod.InterfaceRequest) *npwg.IPAMClaim {
	return &npwg.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   p.Namespace,
			Name:        pod.ReplicaClaim(p.Name, r.Name),
			Labels:      map[string]string{"app.kubernetes.io/managed-by": managedBy},
			Annotations: map[string]string{npwg.AnnotationSeed: set.UID},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: pods.StatefulSetVersion,
				Kind:       pods.StatefulSetKind,
				Name:       set.Name,
				UID:        types.UID(set.UID),
			}},
		},
		Spec: npwg.IPAMClaimSpec{Network: r.Network, Interface: r.Name},
	}
}

// create makes a claim. An existing one stays as it is: a user may make it, and the agent compares it with the pod.
func (m *Maker) create(ctx context.Context, claim *npwg.IPAMClaim) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	_, err := m.client.IPAMClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the API server has no kind IPAMClaim: install its definition (docs/addresses.md): %w",
			client.OneLine(err))
	case err != nil:
		return client.OneLine(err)
	}
	m.log.Info("IPAMClaim made", "claim", claim.Namespace+"/"+claim.Name, "network", claim.Spec.Network)
	return nil
}

// tell reports a claim that could not be made, also to the author of the StatefulSet.
func (m *Maker) tell(ctx context.Context, claim *npwg.IPAMClaim, set pods.StatefulSet, err error) {
	name := claim.Namespace + "/" + claim.Name
	key := claim.Namespace + "/" + strings.TrimSuffix(claim.Name, "."+claim.Spec.Interface)
	if m.keys.NumRequeues(key) == 0 { // it may succeed at once
		m.log.Warn("IPAMClaim not made, retrying", "claim", name, "err", err)
		return
	}
	m.log.Debug("IPAMClaim not made, retrying", "claim", name, "err", err)
	if !m.limit.TryAccept() { // the next try writes it
		return
	}
	why := events.Advise(ctx, m.client, events.Advice{
		Object: corev1.ObjectReference{
			APIVersion: pods.StatefulSetVersion,
			Kind:       pods.StatefulSetKind,
			Namespace:  claim.Namespace,
			Name:       set.Name,
			UID:        types.UID(set.UID),
		},
		Reason: reasonNotMade,
		Cause:  claim.Name,
		Message: fmt.Sprintf("IPAMClaim %s of a pod's persistentIPs is not made, and the pod waits for it: %v",
			claim.Name, err),
	})
	if why != nil {
		m.log.Debug("event not written", "statefulset", claim.Namespace+"/"+set.Name, "err", why)
	}
}
