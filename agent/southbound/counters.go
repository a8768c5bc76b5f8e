package southbound

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/pod"
)

// countersAge is how long a reading is used: the dataplane is read at most once a second, regardless of the number of
// clients.
const countersAge = time.Second

// checkCounters is the interval of checks whether the stats segment can be read.
const checkCounters = 15 * time.Second

// Counters reads the dataplane's counters for metrics and operators, and sets the condition "stats" while it cannot.
// Pods are served without counters.
type Counters struct {
	southbound *Dataplane
	health     *health.Conditions
	log        *slog.Logger

	mu     sync.Mutex
	last   *vpp.Counters
	err    error // of the last reading
	at     time.Time
	warned string // the error of the stats segment in the last warning
}

// NewCounters returns the counters of a dataplane.
func NewCounters(s *Dataplane, h *health.Conditions, log *slog.Logger) *Counters {
	h.Advise(health.Stats)
	return &Counters{southbound: s, health: h, log: log}
}

// errNoDataplane is the error without a connection; the condition "dataplane" has the reason.
var errNoDataplane = errors.New("the dataplane is not connected")

// Read returns the counters, which are up to a second old.
func (c *Counters) Read(ctx context.Context) (*vpp.Counters, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < countersAge {
		return c.last, c.err
	}
	c.last = nil
	c.err = errNoDataplane
	if c.southbound.up.Load() {
		c.last, c.err = c.southbound.Client.Statistics().Counters(ctx)
		c.judgeLocked(ctx, c.err)
	}
	c.at = time.Now()
	return c.last, c.err
}

// Run checks periodically whether counters can be read, so that the condition is right even if no client reads them.
func (c *Counters) Run(ctx context.Context) error {
	if err := c.southbound.Await(ctx); err != nil {
		return err
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if c.southbound.up.Load() {
			err := c.southbound.Client.Statistics().Check(ctx)
			c.mu.Lock()
			c.judgeLocked(ctx, err)
			c.mu.Unlock()
		}
	}, checkCounters)
	return ctx.Err()
}

// judgeLocked sets the condition after a reading. A lost connection, or a cancelled call, does not change it.
func (c *Counters) judgeLocked(ctx context.Context, err error) {
	if ctx.Err() != nil || err != nil && !errors.Is(err, vpp.ErrStats) {
		return
	}
	if err != nil && !c.southbound.up.Load() {
		return
	}
	if err == nil {
		if c.warned != "" {
			c.log.Info("counters of the dataplane are read again")
		}
		c.warned = ""
		c.health.Set(health.Stats, true, "counters are read")
		return
	}
	if c.warned != err.Error() {
		c.log.Warn("counters of the dataplane cannot be read; pods are served without them", "err", err)
	}
	c.warned = err.Error()
	c.health.Set(health.Stats, false, "no counters: "+err.Error())
}

// PodInterface is an interface of a pod with its traffic from the view of the pod: received packets are those that came
// to the pod.
type PodInterface struct {
	At pod.Attachment
	pod.Interface
	vpp.Traffic
	Connected *bool // of a memif: whether the program in the pod is connected
}

// PodCounters assigns counters to the interfaces of attachments. It swaps the directions: the pod sent the packets that
// the dataplane received.
func PodCounters(attachments []pod.Attachment, c *vpp.Counters) []PodInterface {
	var all []PodInterface
	for _, at := range attachments {
		for _, in := range at.Interfaces {
			t, ok := c.Interfaces[in.Object]
			if !ok || in.Object == "" {
				continue
			}
			i := PodInterface{At: at, Interface: in, Traffic: vpp.Traffic{
				RxPackets: t.TxPackets, RxBytes: t.TxBytes, RxDrops: t.TxDrops,
				TxPackets: t.RxPackets, TxBytes: t.RxBytes, TxDrops: t.RxDrops,
			}}
			if in.Type == pod.TypeMemif {
				i.Connected = &t.LinkUp
			}
			all = append(all, i)
		}
	}
	return all
}
