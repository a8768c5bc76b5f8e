package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// poolsValue reads pools from a flag: NAME=PREFIX, comma separated, or a YAML list where a pool has more than that. Given
// again, it replaces what was there.
type poolsValue []Pool

// String shows the pools as they would be given.
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

// Type names the value in the help text.
func (v *poolsValue) Type() string { return "pools" }

func parsePool(item string) (Pool, error) {
	name, text, ok := strings.Cut(strings.TrimSpace(item), "=")
	if !ok {
		return Pool{}, fmt.Errorf("pool %q is not NAME=PREFIX", item)
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
		return fmt.Errorf("pool %q: a name without slash and blank is needed", p.Name)
	case !p.Prefix.IsValid():
		return fmt.Errorf("pool %s: prefix is missing", p.Name)
	case p.Prefix != p.Prefix.Masked():
		return fmt.Errorf("pool %s: %s has host bits set, did you mean %s?", p.Name, p.Prefix, p.Prefix.Masked())
	}
	return nil
}
