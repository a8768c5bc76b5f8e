package blocks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// DefaultLeakGrace is the time after which a missing node of a block or loan counts as deleted: longer than an API
// server or a cloud needs to show a Node again.
const DefaultLeakGrace = 15 * time.Minute

// Collector frees blocks and loans of deleted nodes. It writes objects of all nodes, so it runs in the controller.
type Collector struct {
	Store store
	Pools func() []PoolCIDR
	// NodeUID reads a node's UID from the API server; "": the node does not exist.
	NodeUID func(ctx context.Context, name string) (string, error)
	Grace   time.Duration // default [DefaultLeakGrace]
	Now     func() time.Time
	Log     *slog.Logger

	first map[suspicion]time.Time
}

// suspicion is a possible leak, of one object.
type suspicion struct {
	uid, block, node, address string
}

// Collect checks all pools once. It frees, after another check, leaks that it first saw at least a grace ago, and
// returns their names.
func (c *Collector) Collect(ctx context.Context) ([]string, error) {
	seen := make(map[suspicion]*v1.IPBlock)
	var errs []error
	for _, p := range c.Pools() {
		list, err := c.Store.List(ctx, p, true)
		if err != nil {
			return nil, fmt.Errorf("list the blocks of %s: %w", p, err)
		}
		errs = append(errs, c.suspect(ctx, list, seen))
	}
	var freed []string
	next := make(map[suspicion]time.Time)
	for _, s := range slices.SortedFunc(maps.Keys(seen), func(x, y suspicion) int {
		return cmp.Compare(x.sortKey(), y.sortKey())
	}) {
		b := seen[s]
		since, known := c.first[s]
		if !known {
			since = c.Now()
		}
		next[s] = since
		if !known || c.Now().Sub(since) < c.grace() {
			continue
		}
		gone, err := c.free(ctx, s, b)
		errs = append(errs, err)
		if gone {
			freed = append(freed, s.String())
			delete(next, s)
		}
	}
	c.first = next
	slices.Sort(freed)
	return freed, errors.Join(errs...)
}

// sortKey orders leaks: loans come before their block, which stays while it lends addresses.
func (s suspicion) sortKey() string { return s.block + "/" + cmp.Or(s.address, "~") + "/" + s.node }

// String names the leak.
func (s suspicion) String() string {
	if s.address == "" {
		return "block " + s.block + " of node " + s.node
	}
	return "address " + s.address + " lent to node " + s.node
}

func (c *Collector) grace() time.Duration { return cmp.Or(c.Grace, DefaultLeakGrace) }

// suspect adds the possible leaks of a list to seen.
func (c *Collector) suspect(ctx context.Context, list []v1.IPBlock, seen map[suspicion]*v1.IPBlock) error {
	uids := make(map[string]string)
	for i := range list {
		b := &list[i]
		var possible []suspicion
		if b.Spec.Node != "" {
			possible = append(possible, suspicion{string(b.UID), b.Name, string(b.Spec.Node), ""})
		}
		for _, l := range b.Spec.Borrowed {
			possible = append(possible, suspicion{string(b.UID), b.Name, string(l.Node), string(l.Address)})
		}
		for _, s := range possible {
			if _, asked := uids[s.node]; !asked && s.node != "" {
				uid, err := c.NodeUID(ctx, s.node)
				if err != nil {
					return fmt.Errorf("get node %s: %w", s.node, err)
				}
				uids[s.node] = uid
			}
			if uids[s.node] == "" {
				seen[s] = b
			}
		}
	}
	return nil
}

// free checks a leak again and frees it, if its object has not changed.
func (c *Collector) free(ctx context.Context, s suspicion, b *v1.IPBlock) (bool, error) {
	uid, err := c.NodeUID(ctx, s.node)
	if err != nil || uid != "" {
		return false, err
	}
	switch {
	case s.address == "" &&
		len(b.Spec.Borrowed) > 0: // pods of other nodes use its addresses: its next node continues the loans
		b = b.DeepCopy()
		b.Spec.Node = ""
		b.Spec.Requested = nil
		_, err = c.Store.Update(ctx, b)
	case s.address == "":
		err = c.Store.Delete(ctx, b)
	default:
		b = b.DeepCopy()
		b.Spec.Borrowed = slices.DeleteFunc(b.Spec.Borrowed, func(l v1.Loan) bool {
			return string(l.Address) == s.address && string(l.Node) == s.node
		})
		_, err = c.Store.Update(ctx, b)
	}
	switch {
	case apierrors.IsConflict(err):
		return false, nil // the node is alive: the next poll sees it
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("free %s: %w", s, err)
	}
	if c.Log != nil {
		c.Log.Warn("addresses of a deleted node freed", "block", s.block, "node", s.node, "address", s.address)
	}
	return true, nil
}
