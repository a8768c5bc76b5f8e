package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/pod"
)

// keepClaims is the interval at which claims of running pods are checked.
const keepClaims = 5 * time.Second

// claimKeeper writes the addresses of running pods to their IPAMClaims that hold none: a user deleted a claim, and it
// was made again. Otherwise the next pod would have other addresses.
type claimKeeper struct {
	attachments func() []pod.Attachment
	exists      func(id pod.ID) bool // reports whether the API server has the pod, with its UID
	claims      freeClaims
	log         *slog.Logger
	free        map[string]bool // claims that were free in the last round, by UID and attachment
}

// freeClaims are the claims of the cluster.
type freeClaims interface {
	// FreeClaim returns a claim that the watch has shown, and that holds no address.
	FreeClaim(namespace, name string) (claim pod.IPAMClaim, isFree bool)
	Assign(ctx context.Context, claim pod.IPAMClaim, podName string, addresses []netip.Prefix) error
}

// run keeps claims until ctx ends.
func (k *claimKeeper) run(ctx context.Context) error {
	wait.UntilWithContext(ctx, k.round, keepClaims)
	return ctx.Err()
}

// round assigns each claim that was free in the last round, too: the ADD of a new pod writes its claim itself.
func (k *claimKeeper) round(ctx context.Context) {
	before := k.free
	k.free = make(map[string]bool)
	for _, a := range k.attachments() {
		if !k.exists(a.Pod) {
			continue // the claim may be that of the next pod
		}
		for _, i := range a.Interfaces {
			if i.IPAMClaim == "" || len(i.Addresses) == 0 {
				continue
			}
			claim, isFree := k.claims.FreeClaim(a.Pod.Namespace, i.IPAMClaim)
			if !isFree || claim.Suits(i.Name, cmp.Or(i.Network, pod.DefaultNetwork), nil) != nil {
				continue
			}
			key := claim.UID + " " + a.Key.String()
			k.free[key] = true
			if !before[key] {
				continue
			}
			if err := k.claims.Assign(ctx, claim, a.Pod.Name, i.Addresses); err != nil {
				k.log.Warn("IPAMClaim of a running pod not written, retrying", "pod", a.Pod.String(),
					"interface", i.Name, "err", err)
				continue
			}
			k.log.Info("IPAMClaim holds the addresses of a running pod", "pod", a.Pod.String(), "interface", i.Name)
		}
	}
}
