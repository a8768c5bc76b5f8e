package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/weftnet/weft/internal/nearest"
	"github.com/weftnet/weft/internal/yamltext"
)

// Read reads and validates the configuration from the flags that are set, the environment and the file. Its error has
// all problems, not only the first.
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
	settings, errs := fromFile(keys, file, content)
	settings = append(settings, fromEnvironment(keys, environ)...)
	origins := make(map[string]setting)
	for _, s := range append(settings, fromCommandLine(keys, flags)...) {
		name := kebab(s.key)
		origins[name] = s
		if keys.Lookup(name) == nil {
			errs = append(errs, fmt.Errorf("%s: unknown key %q%s", s.from, s.key, nearestKey(keys, s.key)))
			continue
		}
		if err := keys.Set(name, s.value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", s.from, s.key, plain(keys.Lookup(name), err)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return c, err
	}
	return c, located(c.Validate(), origins)
}

// setting is the text of a key, with its source: a file with the line, a variable or a flag.
type setting struct {
	from, key, value string

	lineOf func(index int) int // line of an item in the file; nil: from is no file
	file   string
}

// fromFile reads the settings of a file. The errors name the lines.
func fromFile(fs *pflag.FlagSet, file string, raw []byte) ([]setting, []error) {
	documents := yamltext.Documents(raw)
	switch len(documents) {
	case 0:
		return nil, nil
	case 1:
	default:
		return nil, []error{
			fmt.Errorf("configuration %s:%d: more than one YAML document (---): put all keys into one document", file,
				documents[1].Line(nil)),
		}
	}
	d := documents[0]
	content, err := d.Decode()
	if wrong := (*yamltext.SyntaxError)(nil); errors.As(err, &wrong) {
		return nil, []error{fmt.Errorf("configuration %s:%d: %w", file, wrong.Line, err)}
	}
	tree, is := content.(map[string]any)
	if !is {
		return nil, []error{
			fmt.Errorf("configuration %s:%d: expected keys and values, not %s", file, d.Line(nil),
				yamltext.Describe(content)),
		}
	}
	var errs []error
	for _, p := range d.Repeated() {
		errs = append(errs, fmt.Errorf("%s:%d: %s: %s", file, p.Line, p.Path, p.Reason))
	}
	var settings []setting
	flatten(fs, nil, tree, func(key string, path yamltext.Path, value any) {
		s := setting{from: fmt.Sprintf("%s:%d", file, d.Line(path)), key: key, value: flagText(value), file: file}
		s.lineOf = func(index int) int { return d.Line(path.With(index)) }
		problems := problemsOf(fs.Lookup(kebab(s.key)), value, path)
		for _, p := range problems {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %s", file, d.Line(p.Path), p.Path, p.Reason))
		}
		if len(problems) == 0 {
			settings = append(settings, s)
		}
	})
	return settings, errs
}

// problemsOf lists the parts of a structured value that its flag cannot have.
func problemsOf(f *pflag.Flag, value any, path yamltext.Path) []yamltext.Problem {
	if f == nil {
		return nil
	}
	if of, is := f.Value.(interface {
		problems(any, yamltext.Path) []yamltext.Problem
	}); is {
		return of.problems(value, path)
	}
	return nil
}

// expectations describe the texts of flags, by the type in their help.
var expectations = map[string]string{
	"bool": "true or false", "int": "an integer", "float64": "a number", "duration": "a duration such as 30s or 5m",
	"stringSlice": "a list of texts",
}

// plain describes the error of a flag without the function of Go that parsed the text.
func plain(f *pflag.Flag, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	if expected := expectations[f.Value.Type()]; expected != "" {
		return fmt.Errorf("expected %s, not %.80q", expected, invalid.GetValue())
	}
	return invalid.Unwrap()
}

// keyOf matches the key, and the index of an item, with which errors of Validate begin.
var keyOf = regexp.MustCompile(`^([A-Za-z.]+)(?:\[(\d+)\])?[:,]`)

// located adds the sources of invalid settings to an error of Validate.
func located(err error, origins map[string]setting) error {
	if err == nil {
		return nil
	}
	if several, is := err.(interface{ Unwrap() []error }); is { // each joined error has a key of its own
		var errs []error
		for _, e := range several.Unwrap() {
			errs = append(errs, located(e, origins))
		}
		return errors.Join(errs...)
	}
	found := keyOf.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	s, is := origins[kebab(found[1])]
	index, invalid := strconv.Atoi(found[2])
	switch {
	case !is:
		return err // a default that does not fit the other values
	case s.lineOf != nil && invalid == nil:
		return fmt.Errorf("%s:%d: %w", s.file, s.lineOf(index), err)
	}
	return fmt.Errorf("%s: %w", s.from, err)
}

// flatten lists the values of keys with dots, in the order of the keys. A subtree that is the value of one flag is one
// value.
func flatten(
	fs *pflag.FlagSet, above yamltext.Path, tree map[string]any, emit func(key string, path yamltext.Path, value any),
) {
	prefix := ""
	for _, step := range above {
		prefix += fmt.Sprint(step) + "."
	}
	for _, k := range slices.Sorted(maps.Keys(tree)) {
		branch, ok := tree[k].(map[string]any)
		if ok && fs.Lookup(kebab(prefix+k)) == nil {
			flatten(fs, above.With(k), branch, emit)
			continue
		}
		emit(prefix+k, above.With(k), tree[k])
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
	case map[string]any, float64:
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
				settings = append(settings, setting{from: name, key: f.Name, value: value})
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
		settings = append(settings, setting{from: "--" + f.Name, key: f.Name, value: value})
	})
	return settings
}

// kebab returns the name of a key's flag: dataplane-type for dataplane.type, allow-ip-forwarding for allowIPForwarding.
func kebab(key string) string {
	var b strings.Builder
	before := rune('.')
	runes := []rune(key)
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

// nearestKey suggests the most similar known key for an unknown one.
func nearestKey(keys *pflag.FlagSet, key string) string {
	var known []string
	keys.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	best := nearest.Of(kebab(key), known)
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
		above := path[:len(path)-1]
		key := path[len(path)-1]
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
	now := c.values()
	then := next.values()
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
