package cluster

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

// NodeNetworks sets the custom networks of this node: the networks of its configuration, and the cluster's networks
// with other names.
type NodeNetworks struct {
	loop       *eventloop.Loop
	log        *slog.Logger
	configured atomic.Pointer[[]pod.Network]     // networks of the configuration, which may change
	refusals   atomic.Pointer[map[string]string] // by network, why it differs from its specification
}

// NewNodeNetworks returns the networks of a node: at first the networks of its configuration.
func NewNodeNetworks(configured []pod.Network, loop *eventloop.Loop, log *slog.Logger) *NodeNetworks {
	ns := &NodeNetworks{loop: loop, log: log}
	ns.configured.Store(&configured)
	ns.refusals.Store(new(map[string]string))
	return ns
}

// Configured returns the networks of the configuration.
func (ns *NodeNetworks) Configured() []pod.Network { return *ns.configured.Load() }

// isConfigured reports whether the configuration has a network of that name, which then is not the cluster's.
func (ns *NodeNetworks) isConfigured(name string) bool {
	return slices.ContainsFunc(ns.Configured(), func(o pod.Network) bool { return o.Name == name })
}

// Of returns the networks of the configuration, and the cluster's networks with other names.
func (ns *NodeNetworks) Of(view nodeview.View) []pod.Network {
	networks := slices.Clone(ns.Configured())
	for _, n := range view.Networks {
		if ns.isConfigured(n.Name) {
			ns.log.Warn("network of the cluster left out: the configuration has one of that name", "network", n.Name)
			continue
		}
		networks = append(networks, n)
	}
	return networks
}

// With returns the networks that the node would have with other networks in its configuration.
func (ns *NodeNetworks) With(configured []pod.Network, view nodeview.View) []pod.Network {
	other := NewNodeNetworks(configured, nil, slog.New(slog.DiscardHandler))
	return other.Of(view)
}

// SetFirst sets the networks that are known when the agent starts: from the cluster, the networks of the last view.
func (ns *NodeNetworks) SetFirst(ctx context.Context, view nodeview.View) {
	ns.Set(ctx, &pod.SetNetworks{Networks: ns.Of(view), Invalid: invalidNetworks(view), From: "configuration"})
}

// Set replaces the networks of the node. It returns false if one was refused, because pods run on it: that network
// stays as it was. A refusal is logged when it or its reason is new.
func (ns *NodeNetworks) Set(ctx context.Context, ev *pod.SetNetworks) bool {
	if _, err := ns.loop.Do(ctx, ev); err != nil {
		ns.log.Error("networks not set", "err", err)
		return false
	}
	told := *ns.refusals.Swap(&ev.Refused)
	for _, name := range slices.Sorted(maps.Keys(ev.Refused)) {
		if reason := ev.Refused[name]; reason != told[name] {
			ns.log.Error("change of a network rejected", "network", name, "reason", reason)
		}
	}
	return len(ev.Refused) == 0
}

// FollowConfig applies the networks of the configuration whenever its file changes: the only part that may change while
// the agent runs.
func (ns *NodeNetworks) FollowConfig(ctx context.Context, c config.Config, view func() nodeview.View) error {
	if c.File == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	known := c
	return config.Watch(ctx, filepath.Dir(c.File), ns.log, func() {
		next, err := c.Reload()
		switch {
		case err != nil:
			ns.log.Error("configuration not reloaded, keeping the previous one", "file", c.File, "err", err)
			return
		case reflect.DeepEqual(next.Addresses.Networks, known.Addresses.Networks):
			return
		}
		ns.log.Info("networks of the configuration changed", "file", c.File)
		known = next
		ns.configured.Store(&next.Addresses.Networks)
		ns.SetFirst(ctx, view())
	})
}

// invalidNetworks returns the reason why no node can have a CustomNetwork, by its name.
func invalidNetworks(view nodeview.View) map[string]string {
	invalid := make(map[string]string)
	for _, f := range view.Faults {
		if f.Kind == "CustomNetwork" {
			invalid[f.Name] = f.Why
		}
	}
	return invalid
}
