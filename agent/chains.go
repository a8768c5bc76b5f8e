package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

const (
	// chainTime is how long after an ADD later plugins of the chain may change its interfaces. Runtimes do not report the end of the last
	// plugin; most plugins need some milliseconds.
	chainTime = 10 * time.Second
	// chainsLook is the interval of the polls for chains to end.
	chainsLook = time.Second
)

// chains preserves the changes of interfaces by later plugins of a chain, such as tuning and sbr. The state of the interfaces at the first
// CHECK, or chainTime after the ADD, is the result of the chain, and is durable:
//
//	ADD --> open: MTU and moved routes may change --> ended: they stay as they are, any other state is drift
type chains struct {
	later   *linux.Later
	ends    *statefile.Buffer[chainEnd]
	view    func() kvscheduler.View
	objects func(*pod.Attachment) []string // that an attachment needs
	log     *slog.Logger

	mu   sync.Mutex
	open map[pod.Key]time.Time // when they end
	over map[pod.Key]map[string]linux.Changes
}

// chainEnd is the result of a chain, by the name of the interface in the dataplane.
type chainEnd struct {
	Key     pod.Key                  `json:"key"`
	Changes map[string]linux.Changes `json:"changes,omitempty"`
	removed bool                     // the attachment
}

func chainEntries(e chainEnd) []eventloop.Saved {
	entry := eventloop.Saved{Bucket: statefile.BucketChains, Key: e.Key.String()}
	if !e.removed {
		entry.Value = e
	}
	return []eventloop.Saved{entry}
}

func (a *Agent) assembleChains() {
	a.chains = &chains{
		later: new(linux.Later), ends: statefile.NewBuffer(a.state, chainEntries), view: a.scheduler.View, objects: a.objects, log: a.log.With("room", "chains"),
		open: make(map[pod.Key]time.Time), over: make(map[pod.Key]map[string]linux.Changes),
	}
	a.observers = append(a.observers, a.chains.observe)
}

// restore takes over the ends of chains that earlier runs recorded for these attachments. Chains without a record may have ended while no
// agent ran, so they are open again.
func (c *chains) restore(ends []chainEnd, attachments []*pod.Attachment) {
	saved := make(map[pod.Key]chainEnd, len(ends))
	for _, e := range ends {
		saved[e.Key] = e
	}
	for _, at := range attachments {
		e, isOver := saved[at.Key]
		delete(saved, at.Key)
		if !isOver {
			c.begin(at, time.Time{})
			continue
		}
		c.over[at.Key] = e.Changes
		for object, changes := range e.Changes {
			c.later.Set(object, changes)
		}
	}
	for key := range saved {
		c.ends.Add(chainEnd{Key: key, removed: true})
	}
}

// begin permits the changes of later plugins.
func (c *chains) begin(at *pod.Attachment, until time.Time) {
	c.open[at.Key] = until
	for _, i := range at.Interfaces {
		if isLinuxEnd(i) {
			c.later.Set(i.Object, linux.Changes{Open: true})
		}
	}
}

func isLinuxEnd(i pod.Interface) bool { return i.Type == pod.TypeTap || i.Type == pod.TypeVeth }

// observe follows the attachments.
func (c *chains) observe(o podmanager.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, isOpen := c.open[o.Key]
	_, isOver := c.over[o.Key]
	switch {
	case o.Happening == podmanager.Added && !isOpen && !isOver: // repeated for an older sandbox that lost a memif
		c.begin(o.Attachment, time.Now().Add(chainTime))
	case o.Happening == podmanager.Removed:
		delete(c.open, o.Key)
		delete(c.over, o.Key)
		for _, i := range o.Attachment.Interfaces {
			c.later.Set(i.Object, linux.Changes{})
		}
		if isOver {
			c.ends.Add(chainEnd{Key: o.Key, removed: true})
		}
	}
}

// end records the current state of an attachment's interfaces as the result of the chain, unless there is a record, and returns the MTUs
// that later plugins set, by interface. A chain whose interfaces cannot be read stays open.
func (c *chains) end(at *pod.Attachment) (mtus map[string]int) {
	if c.isOpen(at.Key) {
		changes, err := c.read(at)
		if err == nil {
			c.ended(at, changes)
		} else if !errors.Is(err, linux.ErrGone) {
			c.log.Warn("changes of later plugins not read", "pod", at.Pod.String(), "container", at.Key.ContainerID, "err", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	mtus = make(map[string]int)
	for _, i := range at.Interfaces {
		if mtu := c.over[at.Key][i.Object].MTU; mtu != 0 {
			mtus[i.Name] = mtu
		}
	}
	return mtus
}

func (c *chains) isOpen(key pod.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, isOpen := c.open[key]
	return isOpen
}

// read compares the interfaces of an attachment with their desired values.
func (c *chains) read(at *pod.Attachment) (map[string]linux.Changes, error) {
	routes := c.routes(at)
	all := make(map[string]linux.Changes)
	for _, i := range at.Interfaces {
		if !isLinuxEnd(i) {
			continue
		}
		changes, err := linux.ReadChanges(wire.Namespace(at.Netns), i.Name, i.MTU, routes[i.Object])
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", i.Name, err)
		}
		if !changes.IsZero() {
			all[i.Object] = changes
		}
	}
	return all, nil
}

// routes lists the desired routes in the pod, by interface in the dataplane.
func (c *chains) routes(at *pod.Attachment) map[string][]wire.LinuxRoute {
	view, routes := c.view(), make(map[string][]wire.LinuxRoute)
	for _, key := range c.objects(at) {
		ref, err := kvscheduler.ParseRef(key)
		if err != nil || ref.Kind != wire.KindLinuxRoute {
			continue
		}
		v, _ := view.Desired(ref)
		route, isRoute := v.(wire.LinuxRoute)
		on, err := kvscheduler.ParseRef(route.On)
		if isRoute && err == nil && route.Namespace == at.Netns.Path {
			routes[on.Name] = append(routes[on.Name], route)
		}
	}
	return routes
}

func (c *chains) ended(at *pod.Attachment, changes map[string]linux.Changes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, isOpen := c.open[at.Key]; !isOpen {
		return // another call was first, or the attachment was removed
	}
	delete(c.open, at.Key)
	c.over[at.Key] = changes
	c.ends.Add(chainEnd{Key: at.Key, Changes: changes})
	for _, i := range at.Interfaces {
		change := changes[i.Object]
		c.later.Set(i.Object, change)
		if !change.IsZero() {
			c.log.Info("later plugins changed an interface", "pod", at.Pod.String(), "container", at.Key.ContainerID,
				"interface", i.Name, "mtu", change.MTU, "tables", fmt.Sprint(change.Tables))
		}
	}
}

// run ends chains after chainTime. Before the first resync the scheduler has no desired values to compare with.
func (c *chains) run(ctx context.Context, isStarted func() bool, attachment func(pod.Key) (pod.Attachment, bool)) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if isStarted() {
			c.endDue(attachment, time.Now())
		}
	}, chainsLook)
	return ctx.Err()
}

// endDue ends the chains that are due. A chain that cannot be read gets another chainTime.
func (c *chains) endDue(attachment func(pod.Key) (pod.Attachment, bool), now time.Time) {
	for _, key := range c.due(now) {
		if at, known := attachment(key); known {
			c.end(&at)
		}
	}
}

func (c *chains) due(now time.Time) (keys []pod.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, until := range c.open {
		if until.Before(now) {
			keys = append(keys, key)
			c.open[key] = now.Add(chainTime)
		}
	}
	return keys
}
