package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/agext/levenshtein"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// LoadConfig completes a Config whose flags were parsed into fs: values of the file and of the environment go where no
// flag was given. keep lists flags of fs that are not keys. Everything that is wrong is reported, not only the first.
func LoadConfig(fs *pflag.FlagSet, file string, environ []string, keep ...string) error {
	given := map[string]bool{}
	fs.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	settings, err := fromFile(file)
	errs := []error{err}
	for _, s := range append(settings, fromEnvironment(fs, environ, keep)...) {
		name := kebab(s.key)
		if fs.Lookup(name) == nil || slices.Contains(keep, name) {
			errs = append(errs, fmt.Errorf("%s: unknown key %q%s", s.from, s.key, nearest(fs, s.key, keep)))
			continue
		}
		if given[name] {
			continue
		}
		if err := fs.Set(name, s.value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", s.from, s.key, err))
		}
	}
	return errors.Join(errs...)
}

type setting struct{ from, key, value string }

func fromFile(file string) ([]setting, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var tree map[string]any
	if err := yaml.UnmarshalStrict(raw, &tree); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	var settings []setting
	flatten("", tree, func(key, value string) { settings = append(settings, setting{file, key, value}) })
	slices.SortFunc(settings, func(a, b setting) int { return strings.Compare(a.key, b.key) })
	return settings, nil
}

// flatten turns a tree into keys with dots; a list becomes the text that its flag takes.
func flatten(prefix string, tree map[string]any, emit func(key, value string)) {
	for k, v := range tree {
		switch v := v.(type) {
		case map[string]any:
			flatten(prefix+k+".", v, emit)
		case []any:
			items := make([]string, len(v))
			for i, item := range v {
				items[i] = listItem(item)
			}
			emit(prefix+k, strings.Join(items, ","))
		case nil:
			emit(prefix+k, "")
		default:
			emit(prefix+k, fmt.Sprint(v))
		}
	}
}

// listItem writes {name: N, prefix: P} as N=P; other forms are left to the flag to judge.
func listItem(item any) string {
	m, ok := item.(map[string]any)
	if !ok || len(m) != 2 || m["name"] == nil || m["prefix"] == nil {
		return fmt.Sprint(item)
	}
	return fmt.Sprintf("%v=%v", m["name"], m["prefix"])
}

// fromEnvironment reads WEFT_ variables: WEFT_DATAPLANE_TYPE is dataplane.type.
func fromEnvironment(fs *pflag.FlagSet, environ, keep []string) []setting {
	var settings []setting
	fs.VisitAll(func(f *pflag.Flag) {
		name := "WEFT_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		for _, e := range environ {
			if value, ok := strings.CutPrefix(e, name+"="); ok && !slices.Contains(keep, f.Name) {
				settings = append(settings, setting{name, f.Name, value})
			}
		}
	})
	return settings
}

// kebab turns a key into the name of its flag: dataplane.type and stateDir into dataplane-type and state-dir.
func kebab(key string) string {
	var b strings.Builder
	lower := false
	for _, r := range key {
		if unicode.IsUpper(r) && lower {
			b.WriteByte('-')
		}
		lower = unicode.IsLower(r)
		if r == '.' {
			r = '-'
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// nearest suggests the known key that is closest to an unknown one.
func nearest(fs *pflag.FlagSet, key string, keep []string) string {
	best, most := "", 0.5 // below half alike it is not a slip of the pen
	fs.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(keep, f.Name) {
			return
		}
		if m := levenshtein.Match(kebab(key), f.Name, nil); m > most {
			best, most = f.Name, m
		}
	})
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", fileKey(best))
}

// groups are the keys that have keys below them.
var groups = []string{"dataplane", "log"}

// fileKey is the inverse of kebab.
func fileKey(flag string) string {
	for _, g := range groups {
		if rest, ok := strings.CutPrefix(flag, g+"-"); ok {
			return g + "." + camel(rest)
		}
	}
	return camel(flag)
}

func camel(kebab string) string {
	parts := strings.Split(kebab, "-")
	for i, p := range parts[1:] {
		if p == "gc" || p == "mtu" {
			parts[i+1] = strings.ToUpper(p)
			continue
		}
		parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
	}
	return strings.Join(parts, "")
}
