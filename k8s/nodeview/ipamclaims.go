package nodeview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
)

// claims finds, assigns and awaits the IPAMClaims of interfaces.
type claims struct {
	config  *Config
	watched *informer.Informer[*npwg.IPAMClaim]
	pods    *pods.Pods
}

// addTo sets the claims that hold addresses, by age: until the watch is complete those of an earlier run. If two
// claims hold an address the older one has it, and the other one holds nothing.
func (c *claims) addTo(v *View) {
	if !c.watched.Synced() && c.config.Known != nil {
		v.IPAMClaims = c.config.Known.IPAMClaims
		return
	}
	holders := make(map[heldAddress]pod.IPAMClaim)
	for _, o := range v1.ByAge(c.watched.All()) {
		claim, err := claimOf(o)
		if err == nil {
			err = distinctFrom(claim, holders)
		}
		if err != nil {
			v.Faults = append(v.Faults, Fault{"IPAMClaim", o.Namespace + "/" + o.Name, err.Error()})
			continue
		}
		for _, a := range claim.Addresses {
			holders[heldAddress{claim.Network, a}] = claim
		}
		if len(claim.Addresses) > 0 {
			v.IPAMClaims = append(v.IPAMClaims, claim)
		}
	}
}

// heldAddress is an address that a claim holds.
type heldAddress struct {
	network string
	address netip.Addr
}

// distinctFrom rejects a claim with an address that another one holds.
func distinctFrom(claim pod.IPAMClaim, holders map[heldAddress]pod.IPAMClaim) error {
	for _, a := range claim.Addresses {
		if other, isHeld := holders[heldAddress{claim.Network, a}]; isHeld {
			return fmt.Errorf("status.ips: %s of network %s is held by %s already; delete one of both", a, claim.Network,
				other)
		}
	}
	return nil
}

// claimOf converts an IPAMClaim. Its addresses may have prefix lengths.
func claimOf(o *npwg.IPAMClaim) (pod.IPAMClaim, error) {
	claim := pod.IPAMClaim{
		Namespace: o.Namespace,
		Name:      o.Name,
		UID:       string(o.UID),
		Network:   o.Spec.Network,
		Interface: o.Spec.Interface,
		Owner:     ownerOf(o),
		Seed:      seedOf(o),
	}
	if len(o.Unreadable) > 0 {
		return claim, errors.New(strings.Join(o.Unreadable, "; "))
	}
	for _, text := range o.Status.IPs {
		p, err := pod.ParseAddress(text)
		if err != nil {
			return claim, fmt.Errorf("status.ips: %w", err)
		}
		claim.Addresses = append(claim.Addresses, p.Addr())
	}
	return claim, nil
}

// IPAMClaim returns the claim of an interface, see FindIPAMClaim. It must exist.
func (c *claims) IPAMClaim(ctx context.Context, namespace, name string) (pod.IPAMClaim, error) {
	claim, exists, err := c.FindIPAMClaim(ctx, namespace, name)
	if err == nil && !exists {
		return claim, pod.Errorf(pod.CodeInvalidAnnotation, "there is no IPAMClaim %s/%s", namespace, name)
	}
	return claim, err
}

// FindIPAMClaim looks for a claim: in the watch, until that is complete in an earlier run, else by one request to the
// API server. Its errors have code 103, or 11: the runtime retries with the next sandbox.
func (c *claims) FindIPAMClaim(
	ctx context.Context, namespace, name string,
) (claim pod.IPAMClaim, exists bool, _ error) {
	if o, known := c.watched.One(namespace + "/" + name); known {
		return readableClaim(o)
	}
	if claim, known := c.claimOfEarlierRun(namespace, name); known {
		return claim, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Question)
	defer cancel()
	o, err := c.config.Client.IPAMClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return claim, false, nil
	case err != nil:
		return claim, false, pod.Errorf(pod.CodeTryAgain,
			"IPAMClaim %s/%s: no answer of the API server within %v, and no watch has shown it: %w", namespace, name,
			c.config.Question, client.OneLine(err))
	}
	return readableClaim(o)
}

// claimOfEarlierRun returns a claim that held addresses, until the watch is complete.
func (c *claims) claimOfEarlierRun(namespace, name string) (pod.IPAMClaim, bool) {
	if c.config.Known == nil || c.watched.Synced() {
		return pod.IPAMClaim{}, false
	}
	for _, claim := range c.config.Known.IPAMClaims {
		if claim.Namespace == namespace && claim.Name == name {
			return claim, true
		}
	}
	return pod.IPAMClaim{}, false
}

func readableClaim(o *npwg.IPAMClaim) (claim pod.IPAMClaim, exists bool, _ error) {
	claim, err := claimOf(o)
	if err != nil {
		return claim, true, pod.Errorf(pod.CodeInvalidAnnotation, "%s: %w", claim, err)
	}
	return claim, true, nil
}

// Assign writes the addresses of an interface to the status of its claim, and leaves the rest of it as it is. It fails
// if the claim was replaced, or has others meanwhile: the next ADD of the pod gets these. Its errors have code 11.
func (c *claims) Assign(ctx context.Context, claim pod.IPAMClaim, podName string, addresses []netip.Prefix) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Question)
	defer cancel()
	err := c.assign(ctx, claim, podName, addresses)
	if apierrors.IsConflict(err) { // another field changed, or the addresses are written already
		err = c.assign(ctx, claim, podName, addresses)
	}
	if _, coded := errors.AsType[*pod.Error](err); err == nil || coded {
		return err
	}
	return pod.Errorf(pod.CodeTryAgain, "%s: %w", claim, client.OneLine(err))
}

// assign is one attempt of Assign. Errors of requests are those of the API server.
func (c *claims) assign(ctx context.Context, claim pod.IPAMClaim, podName string, addresses []netip.Prefix) error {
	claims := c.config.Client.IPAMClaims(claim.Namespace)
	o, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var ips []string
	for _, p := range addresses {
		ips = append(ips, p.String())
	}
	switch {
	case string(o.UID) == claim.UID && slices.Equal(o.Status.IPs, ips):
		return nil
	case string(o.UID) != claim.UID:
		return pod.Errorf(pod.CodeTryAgain, "%s was replaced by another one of its name; try again", claim)
	case len(o.Status.IPs) > 0:
		return pod.Errorf(pod.CodeTryAgain, "%s holds %v meanwhile; try again", claim, o.Status.IPs)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": o.ResourceVersion},
		"status":   map[string]any{"ips": ips, "ownerPod": map[string]any{"name": podName}},
	})
	if err != nil {
		return err
	}
	_, err = claims.Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
