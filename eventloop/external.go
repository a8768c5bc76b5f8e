package eventloop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
)

// configure replaces one source of external configuration.
type configure struct {
	source string
	values map[string][]byte
}

// String contains no values.
func (c *configure) String() string {
	return fmt.Sprintf("external configuration %s: %d values", c.source, len(c.values))
}

// BestEffort is true: values that cannot be applied are retried.
func (c *configure) BestEffort() bool { return true }

// Validate rejects invalid JSON.
func (c *configure) Validate() error {
	for _, key := range slices.Sorted(maps.Keys(c.values)) {
		if _, err := decodeJSON(c.values[key]); err != nil {
			return fmt.Errorf("value of %q: %w", key, err)
		}
	}
	return nil
}

// SetExternal replaces the external configuration of a source: a JSON value for each key. For a key that handlers
// desire, it is an RFC 7396 merge patch of their value; for another key it is the value. Several sources of one key are
// merged in the order of their names. It waits as Do does. Before the start-up resync it returns at once, and the
// resync applies the values. Drops of the record has the invalid values, also of other sources for the same keys.
func (l *Loop) SetExternal(ctx context.Context, source string, values map[string][]byte) (*Record, error) {
	if l.cfg.External == nil {
		return nil, fmt.Errorf("external configuration %s: Config.External is missing", source)
	}
	own := make(map[string][]byte, len(values))
	for key, value := range values {
		own[key] = slices.Clone(value)
	}
	return l.Do(ctx, &configure{source, own})
}

// external is the external configuration. It belongs to the goroutine of Run.
type external struct {
	codec     ExternalCodec
	log       *slog.Logger
	patches   map[string]map[string][]byte // by source and key
	drops     map[string][]Drop            // values that are left out, by key
	committed map[string]any               // values of keys that no handler desires
}

func newExternal(cfg Config) external {
	return external{
		codec:     cfg.External,
		log:       cfg.Log,
		patches:   make(map[string]map[string][]byte),
		drops:     make(map[string][]Drop),
		committed: make(map[string]any),
	}
}

// adopt makes the external values of a committed change part of the state.
func (c *external) adopt(change Change) {
	if change.Resync.rebuilds() {
		c.committed = make(map[string]any)
	}
	apply(c.committed, change.External)
}

// configure is the handler of configure events. All old and new keys of the source are merged again.
func (c *external) configure(ev *configure, txn *Txn) error {
	old := c.patches[ev.source]
	keys := make(map[string][]byte, len(ev.values)) // values may be nil: a plan without the source
	maps.Copy(keys, ev.values)
	for key := range old {
		keys[key] = nil
	}
	txn.touchedExternal = slices.Sorted(maps.Keys(keys))
	c.patches[ev.source] = ev.values
	if len(ev.values) == 0 {
		delete(c.patches, ev.source)
	}
	return nil
}

// mergeExternal is step 8: it makes the change to commit from the handlers' values and external configuration.
func (x *executor) mergeExternal(f *flight) error {
	f.change = Change{Event: f.rec.Seq, Label: f.name, Atomic: f.atomic(), Resync: f.resync, Scope: f.scope}
	switch {
	case f.resync == Downstream || f.resync == None && x.queue.isGated():
	case f.resync.rebuilds():
		x.external.mergeAll(f)
	default:
		x.external.mergeTouched(f)
	}
	f.rec.Changes = len(f.change.Set)
	return nil
}

// mergeAll makes the change of a resync: all desired and all external values.
func (c *external) mergeAll(f *flight) {
	clear(c.drops)
	for _, s := range f.txn.settings {
		if s.Value != nil {
			f.set(s.Key, c.merged(f, s.Key, s.Value))
		}
	}
	for _, key := range c.keys() {
		if f.txn.wants(key) {
			f.releaseExternal(key, c.committed)
			continue
		}
		if v := c.merged(f, key, nil); v != nil {
			f.change.External = append(f.change.External, Setting{key, v})
		}
	}
}

// mergeTouched makes the change of an update: the keys that handlers or external configuration changed.
func (c *external) mergeTouched(f *flight) {
	for _, s := range f.txn.settings {
		c.mergeKey(f, s.Key, true)
	}
	for _, key := range f.txn.touchedExternal {
		if _, ok := f.txn.index[key]; !ok {
			c.mergeKey(f, key, false)
		}
	}
}

// mergeKey adds one key to the change of an update.
func (c *external) mergeKey(f *flight, key string, touched bool) {
	delete(c.drops, key)
	if own := f.txn.Get(key); own != nil {
		f.set(key, c.merged(f, key, own))
		f.releaseExternal(key, c.committed)
		return
	}
	if touched {
		f.set(key, nil)
	}
	v := c.merged(f, key, nil)
	if _, was := c.committed[key]; was || v != nil {
		f.change.External = append(f.change.External, Setting{key, v})
	}
}

// merged returns own with the patches of all sources merged into it. Invalid patches are dropped. Without own the
// patches make the value; nil without a valid patch.
func (c *external) merged(f *flight, key string, own any) any {
	for _, source := range slices.Sorted(maps.Keys(c.patches)) {
		patch, ok := c.patches[source][key]
		if !ok {
			continue
		}
		var v any
		err := protect(func() (err error) { v, err = c.patched(key, own, patch); return err })
		if err != nil {
			c.drop(f, Drop{Key: key, Source: source, Reason: err.Error()})
			continue
		}
		own = v
		f.rec.External++
	}
	return own
}

// keys returns the keys of all patches and of all committed values.
func (c *external) keys() []string {
	keys := make(map[string]bool)
	for _, values := range c.patches {
		for key := range values {
			keys[key] = true
		}
	}
	for key := range c.committed {
		keys[key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// drop records an invalid value of external configuration.
func (c *external) drop(f *flight, d Drop) {
	c.log.Warn("invalid external configuration dropped", "key", d.Key, "source", d.Source, "err", d.Reason)
	f.rec.Drops = append(f.rec.Drops, d)
	c.drops[d.Key] = append(c.drops[d.Key], d)
}

// patched merges one patch into value and validates the result.
func (c *external) patched(key string, value any, patch []byte) (any, error) {
	var doc []byte
	if value != nil {
		var err error
		if doc, err = c.codec.Encode(key, value); err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
	}
	doc, err := mergePatch(doc, patch)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	if string(doc) == "null" {
		return nil, errors.New("null would delete the object")
	}
	v, err := c.codec.Decode(key, doc)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if isNil(v) {
		return nil, errors.New("decode: no value")
	}
	if err := c.codec.Validate(key, v); err != nil {
		return nil, fmt.Errorf("invalid: %w", err)
	}
	return v, nil
}

// dropRefused records the values of external configuration that the committer refused, for each source that has one.
func (c *external) dropRefused(f *flight, refused map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(refused)) {
		for _, source := range slices.Sorted(maps.Keys(c.patches)) {
			if _, has := c.patches[source][key]; has {
				c.drop(f, Drop{Key: key, Source: source, Reason: refused[key]})
			}
		}
	}
}

// mergePatch applies an RFC 7396 merge patch to doc, which may be empty. Numbers keep their digits.
func mergePatch(doc, patch []byte) ([]byte, error) {
	var target any
	if len(doc) > 0 {
		var err error
		if target, err = decodeJSON(doc); err != nil {
			return nil, fmt.Errorf("decode document: %w", err)
		}
	}
	p, err := decodeJSON(patch)
	if err != nil {
		return nil, fmt.Errorf("decode patch: %w", err)
	}
	return json.Marshal(merge(target, p))
}

// merge is MergePatch of RFC 7396, section 2.
func merge(target, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged, ok := target.(map[string]any)
	if !ok {
		merged = make(map[string]any, len(fields))
	}
	for name, value := range fields {
		if value == nil {
			delete(merged, name)
			continue
		}
		merged[name] = merge(merged[name], value)
	}
	return merged
}

// decodeJSON decodes exactly one value.
func decodeJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}
