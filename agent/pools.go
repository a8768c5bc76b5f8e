package agent

import (
	"fmt"
	"net/netip"
	"strings"
)

// poolsValue reads pools from a flag: NAME=PREFIX, comma separated. Given again, it replaces what was there.
type poolsValue []Pool

// String shows the pools as they would be given.
func (v *poolsValue) String() string {
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
	for item := range strings.SplitSeq(s, ",") {
		p, err := parsePool(item)
		if err != nil {
			return err
		}
		*v = append(*v, p)
	}
	return nil
}

// Type names the value in the help text.
func (v *poolsValue) Type() string { return "pools" }

func parsePool(item string) (Pool, error) {
	name, text, ok := strings.Cut(strings.TrimSpace(item), "=")
	if !ok || name == "" || strings.ContainsAny(name, "/ ") {
		return Pool{}, fmt.Errorf("pool %q is not NAME=PREFIX", item)
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return Pool{}, fmt.Errorf("pool %s: %w", name, err)
	}
	if prefix != prefix.Masked() {
		return Pool{}, fmt.Errorf("pool %s: %s has host bits set, did you mean %s?", name, prefix, prefix.Masked())
	}
	return Pool{Name: name, Prefix: prefix}, nil
}
