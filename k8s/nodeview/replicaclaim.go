package nodeview

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
)

// maxSeed bounds the annotation of a claim with the seed of its MAC, in bytes: a UID is shorter.
const maxSeed = 64

// ownerOf returns the UID of the StatefulSet with which a claim is deleted, or "".
func ownerOf(o *npwg.IPAMClaim) string {
	for _, owner := range o.OwnerReferences {
		if owner.APIVersion == pods.StatefulSetVersion && owner.Kind == pods.StatefulSetKind {
			return string(owner.UID)
		}
	}
	return ""
}

// seedOf returns the seed of the MAC of a claim that weft-controller made, or "".
func seedOf(o *npwg.IPAMClaim) string {
	seed := o.Annotations[npwg.AnnotationSeed]
	if len(seed) > maxSeed {
		return ""
	}
	return seed
}

// ReplicaClaim returns the claim with a name that weft-controller makes for a pod of a StatefulSet. It waits a few
// seconds for a new one. A claim that holds addresses since an earlier run needs no answer of the API server. Its
// errors have code 103 for a pod of another controller, or 11: the runtime retries with the next sandbox.
func (c *claims) ReplicaClaim(ctx context.Context, id pod.ID, name string) (pod.IPAMClaim, error) {
	set, err := c.pods.SetOf(ctx, id)
	if coded, _ := errors.AsType[*pod.Error](err); coded != nil && coded.Code == pod.CodeTryAgain {
		if claim, known := c.claimOfEarlierRun(id.Namespace, name); known {
			return claim, nil
		}
	}
	if err != nil {
		return pod.IPAMClaim{}, err
	}
	claim, exists, err := c.awaitClaim(ctx, id.Namespace, name)
	switch {
	case err != nil:
		return claim, err
	case !exists:
		return claim, pod.Errorf(pod.CodeTryAgain,
			"there is no IPAMClaim %s/%s yet: weft-controller makes it if controller.persistentIPs of the chart is "+
				"true; see its log and the events of StatefulSet %s, or make the claim", id.Namespace, name, set.Name)
	case claim.Owner != "" && claim.Owner != set.UID:
		return claim, pod.Errorf(pod.CodeTryAgain,
			"%s is of an earlier StatefulSet %s and is deleted with it; try again", claim, set.Name)
	}
	return claim, nil
}

// awaitClaim waits until the watch shows a claim, and then asks the API server.
func (c *claims) awaitClaim(ctx context.Context, namespace, name string) (pod.IPAMClaim, bool, error) {
	if c.watched.Synced() {
		isShown := func(context.Context) (bool, error) {
			_, known := c.watched.One(namespace + "/" + name)
			return known, nil
		}
		// if the time is over the API server has the answer
		_ = wait.PollUntilContextTimeout(ctx, claimPoll, c.config.Question, true, isShown)
	}
	return c.FindIPAMClaim(ctx, namespace, name)
}

// claimPoll is the interval at which awaitClaim looks.
const claimPoll = 20 * time.Millisecond

// FreeClaim returns a claim that the watch has shown, and that holds no address.
func (c *claims) FreeClaim(namespace, name string) (claim pod.IPAMClaim, isFree bool) {
	o, known := c.watched.One(namespace + "/" + name)
	if !known || o.DeletionTimestamp != nil {
		return claim, false
	}
	claim, err := claimOf(o)
	return claim, err == nil && len(claim.Addresses) == 0
}
