package attach

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/wire"
)

// Config configures [Pods].
type Config struct {
	Memif MemifLimits
	// Secret returns the secret of an allocation of memifs, "" if there is no such allocation; nil: the node has no
	// memifs.
	Secret func(allocation string) secret.Text

	PodQueues    int // pairs, of the links of pods that do not ask for a number; default 1
	MaxPodQueues int // the most that a pod can ask for of a link; default 4

	Policies RuleSource // nil: the node has no policies

	// DelegatedCIDRs contain the addresses outside of the pools that other IPAM plugins may give to pods.
	DelegatedCIDRs []netip.Prefix

	AllowIPForwarding bool // pods' kernels forward packets
	NoDefaultRoutes   bool // pods reach only the node's pools by their main interface, and have no default route
}

func (c Config) withDefaults() Config {
	c.PodQueues = cmp.Or(c.PodQueues, 1)
	c.MaxPodQueues = cmp.Or(c.MaxPodQueues, 4)
	c.Memif = c.Memif.withDefaults()
	return c
}

func (c Config) validate() error {
	if c.PodQueues < 1 || c.PodQueues > c.MaxPodQueues || c.MaxPodQueues > wire.MaxQueues {
		return fmt.Errorf("%d pairs of queues, at most %d: they are within 1 and %d", c.PodQueues, c.MaxPodQueues,
			wire.MaxQueues)
	}
	return nil
}

// MemifLimits are the most that a pod can ask for of a memif.
type MemifLimits struct {
	RingSize   int // slots; default 4096
	BufferSize int // bytes; default 16384
	Queues     int // in each direction; default 4
}

func (l MemifLimits) withDefaults() MemifLimits {
	return MemifLimits{
		RingSize: cmp.Or(l.RingSize, 4096), BufferSize: cmp.Or(l.BufferSize, 16384), Queues: cmp.Or(l.Queues, 4),
	}
}
