package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/yamltext"
	"github.com/weftnet/weft/pod"
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
	var zero, v T
	*s.value = zero
	documents := yamltext.Documents([]byte(text))
	if len(documents) > 1 {
		return fmt.Errorf("%d documents, want one", len(documents))
	}
	for _, d := range documents {
		content, err := d.Decode()
		if err != nil {
			return err
		}
		if err := joined(append(d.Repeated(), s.problems(content, nil)...)); err != nil {
			return err
		}
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			return fmt.Errorf("invalid value %.80q", text) // problems has found it
		}
	}
	*s.value = v
	return nil
}

// problems lists the parts of a value from a file that are not of the type.
func (s *structured[T]) problems(v any, at yamltext.Path) []yamltext.Problem {
	return checker.Check(v, reflect.TypeFor[T](), at)
}

// joined returns an error with the paths and reasons of problems; nil without problems.
func joined(problems []yamltext.Problem) error {
	var errs []error
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("%s: %s", p.Path, p.Reason))
	}
	return errors.Join(errs...)
}

// checker describes wrong values in structured flags.
var checker = yamltext.Checker{
	Expected: map[reflect.Type]string{reflect.TypeFor[netip.Prefix](): "a prefix such as 10.1.0.0/16"},
	Renamed:  map[string]string{"subnetCIDR": "cidrs", "cidr": "prefix", "namespaceSelector": "namespaces"},
	Omitted:  []string{"closed"}, // of a network: the cluster sets it
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
			return fmt.Errorf("%.80q is not a prefix such as 10.0.0.0/8", item)
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
type poolsValue []netaddr.Pool

// poolFields are the fields of a pool in the YAML list.
type poolFields struct {
	Name       string       `json:"name"`
	Prefix     netip.Prefix `json:"prefix"`
	Disabled   bool         `json:"disabled,omitempty"`   // no new addresses; pods keep theirs
	Namespaces []string     `json:"namespaces,omitempty"` // pods of these namespaces may use the pool; empty: all
}

// PoolText returns NAME=PREFIX, the form of the flag.
func PoolText(p netaddr.Pool) string { return p.Name + "=" + p.Prefix.String() }

// String returns the form that Set accepts.
func (v *poolsValue) String() string {
	if slices.ContainsFunc(*v, func(p netaddr.Pool) bool { return p.Disabled || len(p.Namespaces) > 0 }) {
		return v.list()
	}
	parts := make([]string, len(*v))
	for i, p := range *v {
		parts[i] = PoolText(p)
	}
	return strings.Join(parts, ",")
}

// list returns the pools as a list with all fields.
func (v *poolsValue) list() string {
	list := make([]poolFields, len(*v))
	for i, p := range *v {
		list[i] = poolFields{Name: p.Name, Prefix: p.Prefix, Disabled: p.Disabled, Namespaces: p.Namespaces}
	}
	return (&structured[[]poolFields]{&list, "pools"}).String()
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
	var list []poolFields
	if err := (&structured[[]poolFields]{&list, "pools"}).Set(s); err != nil {
		return err
	}
	for _, f := range list {
		*v = append(*v, netaddr.Pool{Name: f.Name, Prefix: f.Prefix, Disabled: f.Disabled, Namespaces: f.Namespaces})
	}
	for _, p := range *v {
		if err := validatePool(p); err != nil {
			return err
		}
	}
	return nil
}

// problems lists the parts of a list from a file that are no pools. Texts have the form of the flag; Set parses them.
func (v *poolsValue) problems(value any, at yamltext.Path) []yamltext.Problem {
	list, isList := value.([]any)
	isText := func(item any) bool { _, is := item.(string); return is }
	if _, is := value.(string); is ||
		isList && !slices.ContainsFunc(list, func(item any) bool { return !isText(item) }) {
		return nil
	}
	return checker.Check(value, reflect.TypeFor[[]poolFields](), at)
}

// Type returns the type for the help text.
func (v *poolsValue) Type() string { return "pools" }

// networksValue is the flag of custom networks, a YAML list.
type networksValue []pod.Network

func (v *networksValue) structured() *structured[[]pod.Network] {
	return &structured[[]pod.Network]{(*[]pod.Network)(v), "networks"}
}

// String returns the form that Set accepts.
func (v *networksValue) String() string { return v.structured().String() }

// Set replaces the networks.
func (v *networksValue) Set(text string) error {
	if err := v.structured().Set(text); err != nil {
		return err
	}
	var said []struct {
		AntiSpoof *bool `json:"antiSpoof"`
	}
	if err := yaml.Unmarshal([]byte(text), &said); err != nil {
		return fmt.Errorf("invalid value %.80q", text) // structured has read it
	}
	for i, n := range said {
		if n.AntiSpoof == nil {
			(*v)[i].AntiSpoof = pod.IsAntiSpoofByDefault((*v)[i].CIDRs)
		}
	}
	return nil
}

// problems lists the parts of a value from a file that are no networks.
func (v *networksValue) problems(value any, at yamltext.Path) []yamltext.Problem {
	return v.structured().problems(value, at)
}

// Type returns the type for the help text.
func (v *networksValue) Type() string { return v.structured().Type() }

func parsePool(item string) (netaddr.Pool, error) {
	name, text, ok := strings.Cut(strings.TrimSpace(item), "=")
	if !ok {
		return netaddr.Pool{}, fmt.Errorf("pool %q must be NAME=PREFIX", item)
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netaddr.Pool{}, fmt.Errorf("pool %s: %.80q is not a prefix such as 10.1.0.0/16", name, text)
	}
	p := netaddr.Pool{Name: name, Prefix: prefix}
	return p, validatePool(p)
}

func validatePool(p netaddr.Pool) error {
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
