package dra

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/pod"
)

// collector releases claims that vanished.
type collector struct {
	config       *Config
	preparations *preparations
	metadata     *metadata
	early        chan struct{} // filled when the library removes the metadata of a prepared claim
}

// run releases claims that vanished and recreates lost metadata of the claims that are left, at once and
// periodically, until ctx ends.
func (c *collector) run(ctx context.Context) {
	tick := time.NewTicker(c.config.Collect)
	defer tick.Stop()
	for {
		c.collect(ctx)
		c.metadata.restore(ctx)
		select {
		case <-tick.C:
		case <-c.early:
			if retry.Pause(ctx, removalTime) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// removalTime is the time in which the library removes metadata after a claim was released.
const removalTime = time.Second

// restoreSuccessor restores the metadata of a prepared claim soon if the released claim had the same name. The library
// has one directory for a name, and removes it when kubelet releases the first claim late.
func (c *collector) restoreSuccessor(released pod.ClaimID) {
	for _, id := range c.config.Devices.Claims() {
		if id.Namespace != released.Namespace || id.Name != released.Name {
			continue
		}
		select {
		case c.early <- struct{}{}:
		default: // it will be restored already
		}
		return
	}
}

// collect releases the prepared claims that no longer exist, or that no pod needs: kubelet forgets them if it loses its
// state. Those that an attachment uses stay.
func (c *collector) collect(ctx context.Context) {
	for _, id := range c.config.Devices.Claims() {
		preparation := c.preparations.lastOf(id.UID)
		reason, err := c.obsolete(ctx, id)
		if err != nil && ctx.Err() == nil {
			c.config.Log.Debug("claim not looked up", "claim", id.String(), "err", err)
		}
		if reason == "" {
			continue
		}
		release := func() error {
			if err := c.config.Devices.Unclaim(ctx, id, reason); err != nil {
				return err
			}
			return c.metadata.remove(id)
		}
		if err := c.preparations.ifLast(id.UID, preparation, release); err != nil {
			c.config.Log.Debug("obsolete claim not released", "claim", id.String(), "reason", reason, "err", err)
		}
	}
}

// preparations numbers the preparations of claims, and has the last one of each UID. A claim that no pod needed may be
// prepared for another pod while the API server's answer is on its way: then it is not released.
type preparations struct {
	mu     sync.Mutex
	number uint64
	last   map[string]uint64
}

func (p *preparations) note(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = make(map[string]uint64)
	}
	p.number++
	p.last[uid] = p.number
}

// lastOf returns the number of the last preparation of a claim; 0: an earlier run of the agent prepared it, or none
// did.
func (p *preparations) lastOf(uid string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[uid]
}

// ifLast releases a claim if the preparation is still its last one. Another preparation that begins meanwhile waits.
func (p *preparations) ifLast(uid string, preparation uint64, release func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last[uid] != preparation {
		return nil
	}
	delete(p.last, uid)
	return release()
}

// forget is for a claim that kubelet released.
func (p *preparations) forget(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, uid)
}

// obsolete returns why a prepared claim is obsolete; "" if it is not.
func (c *collector) obsolete(ctx context.Context, id pod.ClaimID) (string, error) {
	claim, err := c.config.Client.ResourceV1().ResourceClaims(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "it is deleted", nil
	case err != nil:
		return "", client.OneLine(err)
	case string(claim.UID) != id.UID:
		return "another claim has its name", nil
	case claim.Status.Allocation == nil || len(claim.Status.ReservedFor) == 0:
		return "no pod needs it", nil
	}
	return "", nil
}
