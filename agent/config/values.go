package config

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// structured is a flag with a YAML or JSON value. It rejects unknown fields.
type structured[T any] struct {
	value *T
	kind  string // in the help text
}

// String returns the value as JSON, or "" for the zero value.
func (s *structured[T]) String() string {
	if s.value == nil || reflect.ValueOf(*s.value).IsZero() {
		return ""
	}
	raw, err := json.Marshal(*s.value)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// Set replaces the value.
func (s *structured[T]) Set(text string) error {
	var v T
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		return fmt.Errorf("invalid value: %w", err)
	}
	*s.value = v
	return nil
}

// Type returns the type for the help text.
func (s *structured[T]) Type() string { return s.kind }

// Prefixes are prefixes without host bits.
type Prefixes []netip.Prefix

// String returns the form that Set accepts.
func (p *Prefixes) String() string {
	texts := make([]string, len(*p))
	for i, prefix := range *p {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, ",")
}

// Set replaces the prefixes.
func (p *Prefixes) Set(text string) error {
	*p = nil
	if text == "" {
		return nil
	}
	for item := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(item))
		switch {
		case err != nil:
			return err
		case prefix != prefix.Masked():
			return fmt.Errorf("%s has host bits set, did you mean %s?", prefix, prefix.Masked())
		case prefix.Addr().Is4In6():
			return fmt.Errorf("%s is an IPv4-mapped IPv6 prefix", prefix)
		}
		*p = append(*p, prefix)
	}
	return nil
}

// Type returns the type for the help text.
func (p *Prefixes) Type() string { return "prefixes" }

// poolsValue is the flag of pools: NAME=PREFIX, comma separated, or a YAML list for pools with more fields.
type poolsValue []Pool

// String returns the form that Set accepts.
func (v *poolsValue) String() string {
	if slices.ContainsFunc(*v, func(p Pool) bool { return p.Disabled || len(p.Namespaces) > 0 }) {
		return (&structured[[]Pool]{(*[]Pool)(v), "pools"}).String()
	}
	parts := make([]string, len(*v))
	for i, p := range *v {
		parts[i] = p.String()
	}
	return strings.Join(parts, ",")
}

// Set replaces the pools.
func (v *poolsValue) Set(s string) error {
	*v = nil
	if s == "" {
		return nil
	}
	if strings.HasPrefix(s, "[") {
		return v.setList(s)
	}
	for item := range strings.SplitSeq(s, ",") {
		p, err := parsePool(item)
		if err != nil {
			return err
		}
		*v = append(*v, p)
	}
	return nil
}

func (v *poolsValue) setList(s string) error {
	if err := (&structured[[]Pool]{(*[]Pool)(v), "pools"}).Set(s); err != nil {
		return err
	}
	for _, p := range *v {
		if err := p.validate(); err != nil {
			return err
		}
	}
	return nil
}

// Type returns the type for the help text.
func (v *poolsValue) Type() string { return "pools" }

func parsePool(item string) (Pool, error) {
	name, text, ok := strings.Cut(strings.TrimSpace(item), "=")
	if !ok {
		return Pool{}, fmt.Errorf("pool %q must be NAME=PREFIX", item)
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return Pool{}, fmt.Errorf("pool %s: %w", name, err)
	}
	p := Pool{Name: name, Prefix: prefix}
	return p, p.validate()
}

func (p Pool) validate() error {
	switch {
	case p.Name == "" || strings.ContainsAny(p.Name, "/ "):
		return fmt.Errorf("pool %q: invalid name: it must not be empty or contain slashes or blanks", p.Name)
	case !p.Prefix.IsValid():
		return fmt.Errorf("pool %s: prefix is missing", p.Name)
	case p.Prefix != p.Prefix.Masked():
		return fmt.Errorf("pool %s: %s has host bits set, did you mean %s?", p.Name, p.Prefix, p.Prefix.Masked())
	}
	return nil
}
