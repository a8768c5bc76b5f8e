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
	for _, d := range yamltext.Documents([]byte(text)) {
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

// joined returns an error with the paths and reasons of problems; nil: there are none.
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

// problems lists the parts of a list from a file that are no pools. Texts have the form of the flag; Set parses them.
func (v *poolsValue) problems(value any, at yamltext.Path) []yamltext.Problem {
	list, isList := value.([]any)
	isText := func(item any) bool { _, is := item.(string); return is }
	if _, is := value.(string); is ||
		isList && !slices.ContainsFunc(list, func(item any) bool { return !isText(item) }) {
		return nil
	}
	return checker.Check(value, reflect.TypeFor[[]Pool](), at)
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

func parsePool(item string) (Pool, error) {
	name, text, ok := strings.Cut(strings.TrimSpace(item), "=")
	if !ok {
		return Pool{}, fmt.Errorf("pool %q must be NAME=PREFIX", item)
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return Pool{}, fmt.Errorf("pool %s: %.80q is not a prefix such as 10.1.0.0/16", name, text)
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
