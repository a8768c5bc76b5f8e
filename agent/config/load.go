package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/agext/levenshtein"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Read reads and validates the configuration from the flags that are set, the environment and the file. Its error has all
// problems, not only the first.
func Read(flags *pflag.FlagSet, file string, environ []string) (Config, error) {
	if file == "" {
		return Parse(flags, file, nil, environ)
	}
	raw, err := os.ReadFile(file)
	c, others := Parse(flags, file, raw, environ)
	if err != nil {
		return c, errors.Join(fmt.Errorf("configuration: %w", err), others)
	}
	return c, others
}

// Parse is Read with the content of the file.
func Parse(flags *pflag.FlagSet, file string, content []byte, environ []string) (Config, error) {
	c := Config{File: file}
	keys := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.Flags(keys)
	settings, err := fromFile(keys, file, content)
	errs := []error{err}
	settings = append(settings, fromEnvironment(keys, environ)...)
	for _, s := range append(settings, fromCommandLine(keys, flags)...) {
		name := kebab(s.key)
		if keys.Lookup(name) == nil {
			errs = append(errs, fmt.Errorf("%s: unknown key %q%s", s.from, s.key, nearest(keys, s.key)))
			continue
		}
		if err := keys.Set(name, s.value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", s.from, s.key, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return c, err
	}
	return c, c.Validate()
}

type setting struct{ from, key, value string }

func fromFile(fs *pflag.FlagSet, file string, raw []byte) ([]setting, error) {
	documents, err := Documents(raw)
	if err == nil && len(documents) > 1 {
		err = errors.New("more than one YAML document (---): put all keys into one document")
	}
	var tree map[string]any
	if err == nil {
		err = yaml.UnmarshalStrict(bytes.Join(documents, nil), &tree)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	var settings []setting
	flatten(fs, "", tree, func(key, value string) { settings = append(settings, setting{file, key, value}) })
	slices.SortFunc(settings, func(a, b setting) int { return strings.Compare(a.key, b.key) })
	return settings, nil
}

// flatten converts a tree into keys with dots. A subtree that is the value of one flag becomes the text of the flag.
func flatten(fs *pflag.FlagSet, prefix string, tree map[string]any, emit func(key, value string)) {
	for k, v := range tree {
		branch, ok := v.(map[string]any)
		if ok && fs.Lookup(kebab(prefix+k)) == nil {
			flatten(fs, prefix+k+".", branch, emit)
			continue
		}
		emit(prefix+k, flagText(v))
	}
}

// flagText returns the text of a flag: a list of strings with commas, nested values as JSON.
func flagText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		words := make([]string, len(v))
		for i, item := range v {
			word, ok := item.(string)
			if !ok {
				return asJSON(v)
			}
			words[i] = word
		}
		return strings.Join(words, ",")
	case map[string]any:
		return asJSON(v)
	}
	return fmt.Sprint(v)
}

func asJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error() // the flag rejects this text
	}
	return string(raw)
}

// fromEnvironment returns the settings of WEFT_ variables: WEFT_DATAPLANE_TYPE is dataplane.type.
func fromEnvironment(keys *pflag.FlagSet, environ []string) []setting {
	var settings []setting
	keys.VisitAll(func(f *pflag.Flag) {
		name := "WEFT_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		for _, e := range environ {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				settings = append(settings, setting{name, f.Name, value})
			}
		}
	})
	return settings
}

func fromCommandLine(keys, flags *pflag.FlagSet) []setting {
	var settings []setting
	flags.Visit(func(f *pflag.Flag) {
		if keys.Lookup(f.Name) == nil {
			return
		}
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		settings = append(settings, setting{"--" + f.Name, f.Name, value})
	})
	return settings
}

// kebab returns the name of a key's flag: dataplane-type for dataplane.type, allow-ip-forwarding for allowIPForwarding.
func kebab(key string) string {
	var b strings.Builder
	before, runes := rune('.'), []rune(key)
	for i, r := range runes {
		endsCapitals := unicode.IsUpper(before) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if unicode.IsUpper(r) && (unicode.IsLower(before) || endsCapitals) {
			b.WriteByte('-')
		}
		before = r
		if r == '.' {
			r = '-'
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// nearest suggests the most similar known key for an unknown one.
func nearest(keys *pflag.FlagSet, key string) string {
	best, most := "", 0.5 // below 0.5 it is no typing error
	keys.VisitAll(func(f *pflag.Flag) {
		if m := levenshtein.Match(kebab(key), f.Name, nil); m > most {
			best, most = f.Name, m
		}
	})
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", fileKey(best))
}

// groups are the prefixes of nested keys, the longest first.
var groups = []string{"dataplane", "devices-memif", "devices", "http", "kubernetes", "log", "tracing", "ui"}

// fileKey is the inverse of kebab.
func fileKey(flag string) string {
	for _, g := range groups {
		if rest, ok := strings.CutPrefix(flag, g+"-"); ok {
			return strings.ReplaceAll(g, "-", ".") + "." + camel(rest)
		}
	}
	return camel(flag)
}

func camel(kebab string) string {
	parts := strings.Split(kebab, "-")
	for i, p := range parts[1:] {
		if p == "gc" || p == "ip" || p == "mtu" || p == "id" {
			parts[i+1] = strings.ToUpper(p)
			continue
		}
		parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
	}
	return strings.Join(parts, "")
}

// String returns the configuration as a YAML file.
func (c Config) String() string {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown := c
	shown.Flags(fs) // sets the defaults
	shown = c       // restores the values
	var b strings.Builder
	var open []string // groups of the previous key
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		path := strings.Split(fileKey(f.Name), ".")
		above, key := path[:len(path)-1], path[len(path)-1]
		for depth, group := range above {
			if depth >= len(open) || open[depth] != group {
				fmt.Fprintf(&b, "%s%s:\n", indent(depth), group)
				open = nil
			}
		}
		open = above
		fmt.Fprintf(&b, "%s%s: %s\n", indent(len(above)), key, yamlValue(f))
	})
	return b.String()
}

// Changed is a key with two values, as YAML.
type Changed struct{ Key, Old, New string }

// Changes lists the keys in which another configuration differs, in the order of String.
func (c Config) Changes(next Config) []Changed {
	var list []Changed
	now, then := c.values(), next.values()
	for i, v := range now {
		if v.value != then[i].value {
			list = append(list, Changed{Key: v.key, Old: v.value, New: then[i].value})
		}
	}
	return list
}

// values lists all keys with their values.
func (c Config) values() []setting {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown := c
	shown.Flags(fs) // sets the defaults
	shown = c       // restores the values
	fs.SortFlags = false
	var list []setting
	fs.VisitAll(func(f *pflag.Flag) { list = append(list, setting{key: fileKey(f.Name), value: yamlValue(f)}) })
	return list
}

func indent(depth int) string { return strings.Repeat("  ", depth) }

func yamlValue(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "string":
		return fmt.Sprintf("%q", f.Value.String())
	case "pools":
		return asJSON(f.Value)
	}
	return f.Value.String()
}

// betweenDocuments matches a line that separates YAML documents. beginsDocument matches a separator with content.
var (
	betweenDocuments = regexp.MustCompile(`(?m)^(---|\.\.\.)[ \t]*(#.*)?\r?$`)
	beginsDocument   = regexp.MustCompile(`(?m)^---[ \t].*$`)
)

// Documents splits a YAML text into documents without those that have only comments. A YAML parser silently ignores all but the
// first document.
func Documents(raw []byte) (documents [][]byte, _ error) {
	for _, document := range betweenDocuments.Split(string(raw), -1) {
		if line := beginsDocument.FindString(document); line != "" {
			return nil, fmt.Errorf("line %q: move the content after --- to the next line", line)
		}
		var content any
		if err := yaml.Unmarshal([]byte(document), &content); err != nil || content != nil {
			documents = append(documents, []byte(document))
		}
	}
	return documents, nil
}
