package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/pod"
)

// comparison finds the changes that a start with another configuration would make.
type comparison struct {
	networkSettings
	config     *config.Config
	storage    *storage
	network    *ipnet.Network
	quarantine *recovery.Quarantine
}

// newValues returns the desired values that change if the agent starts with another configuration, and notes on
// settings that are not compared. It makes the values of both configurations from the stored state with networks of its
// own, so that the agent's are not touched.
func (c *comparison) newValues(ctx context.Context, next config.Config) ([]eventloop.Setting, []string, error) {
	saved, err := c.storage.saved()
	if err != nil {
		return nil, nil, err
	}
	var notes []string
	before, err := c.valuesWith(ctx, c.cluster.settings(), saved)
	if err != nil {
		return nil, nil, fmt.Errorf("values of the present configuration: %w", err)
	}
	after, err := c.valuesWith(ctx, next, saved)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(after.refused)) {
		notes = append(notes, fmt.Sprintf("network %s would stay as it is: %s", name, after.refused[name]))
	}
	if c.cluster.member != nil {
		notes = append(notes, "changes of the settings kubernetes are not compared: they depend on the API server")
	}
	if next.Dataplane != c.config.Dataplane || !reflect.DeepEqual(next.Devices, c.config.Devices) {
		notes = append(notes,
			"changes of the settings dataplane and devices are not compared: a start makes them with the dataplane and kubelet")
	}
	var set []eventloop.Setting
	for _, key := range slices.Sorted(maps.Keys(after.values)) {
		if !reflect.DeepEqual(before.values[key], after.values[key]) {
			set = append(set, eventloop.Setting{Key: key, Value: after.values[key]})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before.values)) {
		if _, stays := after.values[key]; !stays {
			set = append(set, eventloop.Setting{Key: key})
		}
	}
	return set, notes, nil
}

// scratch collects the desired values of an event loop without applying them.
type scratch struct {
	mu      sync.Mutex
	values  map[string]any
	refused map[string]string // networks that stay as they were, with reasons
}

// Commit implements eventloop.Committer.
func (s *scratch) Commit(_ context.Context, ch eventloop.Change) (eventloop.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch.Resync != eventloop.None {
		s.values = make(map[string]any)
	}
	for _, set := range ch.Set {
		if set.Value == nil {
			delete(s.values, set.Key)
			continue
		}
		s.values[set.Key] = set.Value
	}
	return eventloop.Outcome{}, nil
}

// valuesWith returns the values that a node with this configuration and state desires, once its networks are set.
func (c *comparison) valuesWith(ctx context.Context, of config.Config, saved ipnet.Saved) (*scratch, error) {
	settings := c.of(&of)
	settings.Networks.Log = slog.New(slog.DiscardHandler)
	settings.Mesh.LinkTypes = linkTypes(&of, c.network.Host.LinkTypes().NoTap)
	n, err := ipnet.New(settings)
	if err != nil {
		return nil, fmt.Errorf("networks: %w", err)
	}
	n.Restore(saved)
	n.Pods.SetWithheld(c.quarantine.Keys())
	out := &scratch{}
	loop := eventloop.New(eventloop.Config{Committer: out})
	n.Register(loop)
	life, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = loop.Run(life) }) // returns nil after end
	defer running.Wait()
	defer end()
	if _, err := loop.Do(ctx, eventloop.Resynchronize{Kind: eventloop.Full, Reason: "plan"}); err != nil {
		return nil, err
	}
	set := &pod.SetNetworks{
		Networks: c.cluster.networks.With(of.Addresses.Networks, c.cluster.view()),
		From:     "configuration",
	}
	if _, err := loop.Do(ctx, set); err != nil {
		return nil, err
	}
	out.refused = set.Refused
	return out, nil
}
