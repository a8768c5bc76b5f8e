package agent

import (
	"context"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/pod"
)

// settings are the configuration in force: as it was read at the start, with what became of it, and the networks of now.
func (a *Agent) settings() config.Config {
	c := a.config
	c.Networks = *a.configured.Load()
	return c
}

// setFirstNetworks sets those that are known when the agent starts. Where the cluster is still to say which there are,
// those that it said last stay.
func (a *Agent) setFirstNetworks(ctx context.Context) {
	ev := &pod.SetNetworks{Networks: *a.configured.Load(), From: "configuration"}
	if a.cluster != nil {
		view := a.cluster.View()
		ev.Networks, ev.Invalid = a.networksOf(view), invalidNetworks(view)
	}
	a.setNetworks(ctx, ev)
}

// setNetworks makes these networks those of the node. What is refused, because pods run on it, stays
// as it was, and is logged when that or the reason is new; then it is false.
func (a *Agent) setNetworks(ctx context.Context, ev *pod.SetNetworks) bool {
	if _, err := a.loop.Do(ctx, ev); err != nil {
		a.log.Error("networks not set", "err", err)
		return false
	}
	told := *a.refusals.Swap(&ev.Refused)
	for _, name := range slices.Sorted(maps.Keys(ev.Refused)) {
		if reason := ev.Refused[name]; reason != told[name] {
			a.log.Error("network left as it was", "network", name, "reason", reason)
		}
	}
	return len(ev.Refused) == 0
}

// followConfig applies what may change while the agent runs, the networks, when the file of the configuration changes.
func (a *Agent) followConfig(ctx context.Context) error {
	if a.config.File == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	known := a.config
	return watch(ctx, filepath.Dir(a.config.File), a.log, func() {
		next, err := a.config.Reload()
		switch {
		case err != nil:
			a.log.Error("configuration not read again, the old one stays", "file", a.config.File, "err", err)
			return
		case reflect.DeepEqual(next.Networks, known.Networks):
			return
		}
		a.log.Info("networks of the configuration changed", "file", a.config.File)
		known = next
		a.configured.Store(&next.Networks)
		a.setFirstNetworks(ctx)
	})
}
