package weft_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/pages"
)

func allPages(t *testing.T) []pages.Page {
	t.Helper()
	all, err := pages.All(".")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLinksOfPagesLeadToFilesAndHeadings(t *testing.T) {
	anchors := map[string]map[string]bool{}
	all := allPages(t)
	for _, p := range all {
		anchors[p.Path] = p.Anchors
	}
	checked := 0
	for _, p := range all {
		for _, l := range p.Links {
			if strings.Contains(l.Target, "://") || strings.HasPrefix(l.Target, "mailto:") {
				continue
			}
			checked++
			file, anchor, hasAnchor := strings.Cut(l.Target, "#")
			target := p.Path
			if file != "" {
				target = filepath.Join(filepath.Dir(p.Path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s:%d: link to %s, which does not exist", p.Path, l.Line, l.Target)
			} else if hasAnchor && !anchors[target][anchor] {
				t.Errorf("%s:%d: link to %s, and %s has no such heading", p.Path, l.Line, l.Target, target)
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d links are checked", checked)
	}
}

// languages are those of code blocks. The other blocks are checked below, those of ARCHITECTURE.md by tests of their
// own; text is output, go is an excerpt of an example, and c is checked by hand.
var languages = []string{"sh", "console", "yaml", "json", "text", "arrows", "walk", "c", "go"}

// Each block is a shell script with existing commands, files and targets, or valid YAML. Tests of ctl and
// cmd/weft-agent check the command lines of these programs.
func TestCodeBlocksOfPagesAreValid(t *testing.T) {
	targets := targetsOfMake(t)
	scripts := 0
	manifests := 0
	for _, p := range allPages(t) {
		for _, b := range p.Blocks {
			where := fmt.Sprintf("%s:%d", p.Path, b.Line)
			if b.Fenced && !slices.Contains(languages, b.Language) {
				t.Errorf("%s: a code block has the language %q; use one of %v", where, b.Language, languages)
			}
			var errs []error
			if b.IsShell() {
				scripts++
				errs = checkScript(b, targets)
			} else if b.Language == "yaml" || b.Language == "json" || !b.Fenced && looksLikeYAML(b.Text) {
				manifests++
				errs = checkYAML(b.Text)
			}
			for _, err := range errs {
				t.Errorf("%s: %v", where, err)
			}
		}
	}
	if scripts < 60 || manifests < 10 {
		t.Errorf("checked %d scripts and %d manifests", scripts, manifests)
	}
}

func TestInvalidCodeBlocksAreReported(t *testing.T) {
	targets := targetsOfMake(t)
	for text, want := range map[string]string{
		"make nonsense": "make has no target nonsense",
		"kubectl apply -f k8s/manifests/nothing.yaml":           "nothing.yaml",
		"helm install weft k8s/chart/none":                      "k8s/chart/none",
		"weftctl status 'open":                                  "not a shell script",
		"kind: Pod\napiVersion: v1\nspec: {container: []}":      `unknown field "spec.container"`,
		"metadata: {annotations: {contivpp.io/custom-if: t/x}}": "the type must be tap, veth or memif",
		"metadata: {annotations: {contivpp.io/custom-of: t}}":   "unknown annotation contivpp.io/custom-of",
		"dataplane: {sockets: a}":                               `unknown key "dataplane.sockets"`,
		"agent: {enviroment: []}":                               "the chart has no value agent.enviroment",
		"kind: Nothing\napiVersion: v1":                         `"Nothing"`,
		"a: [":                                                  "yaml",
	} {
		var errs []error
		if b := (pages.Block{Text: text}); b.IsShell() {
			errs = checkScript(b, targets)
		} else {
			errs = checkYAML(text)
		}
		if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The manifests name an image that make image does not make by default. So each page that applies weft.yaml says how to
// make it.
func TestPagesThatApplyManifestsMakeTheirImage(t *testing.T) {
	images := found(regexp.MustCompile(`(?m)^ +image: (\S+)$`), read(t, "k8s/manifests/weft.yaml"))
	if len(images) != 1 {
		t.Fatalf("the manifests have the images %v", slices.Sorted(maps.Keys(images)))
	}
	made := regexp.MustCompile(`make image IMAGE=([\w./:-]+)`)
	checked := 0
	for _, p := range allPages(t) {
		text := read(t, p.Path)
		names := found(made, text)
		for name := range names {
			if !images[name] {
				t.Errorf("%s: make image IMAGE=%s, and the manifests have the image %v", p.Path, name,
					slices.Sorted(maps.Keys(images)))
			}
		}
		if strings.Contains(text, "-f k8s/manifests/weft.yaml") {
			checked++
			if len(names) == 0 {
				t.Errorf("%s applies weft.yaml and does not make its image", p.Path)
			}
		}
	}
	if checked == 0 {
		t.Error("no page applies weft.yaml")
	}
}

// The programs of the pages are excerpts of examples, which the tests of their packages compile.
func TestGoOfPagesIsFromExamples(t *testing.T) {
	files, err := filepath.Glob("memif/examples/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	var examples strings.Builder
	for _, file := range append(files, "memif/example_test.go") {
		examples.WriteString(read(t, file))
	}
	excerpts := 0
	for _, p := range allPages(t) {
		for _, b := range p.Blocks {
			if b.Language == "go" {
				excerpts++
				if !strings.Contains(examples.String(), b.Text) {
					t.Errorf("%s:%d: no example of memif has these lines", p.Path, b.Line)
				}
			}
		}
	}
	if excerpts == 0 {
		t.Error("no page has a block of go")
	}
}

// targetsOfMake returns the targets of the Makefile.
func targetsOfMake(t *testing.T) map[string]bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "make", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	return found(regexp.MustCompile(`(?m)^  make (\S+)`), string(out))
}

// ours matches the path of a file of the repository in a command.
var ours = regexp.MustCompile(`^(\./)?(k8s|docs|test|examples|cmd|tools|memif)/[\w./*{},-]+$`)

func checkScript(b pages.Block, targets map[string]bool) (errs []error) {
	commands, err := b.Commands()
	if err != nil {
		return []error{err}
	}
	for _, c := range commands {
		if arguments, found := pages.Of(c, "make"); found && len(arguments) > 0 && !targets[arguments[0]] {
			errs = append(errs, fmt.Errorf("make has no target %s", arguments[0]))
		}
		for _, word := range c {
			if !ours.MatchString(word) {
				continue
			}
			if files, err := filepath.Glob(word); err != nil || len(files) == 0 {
				errs = append(errs,
					fmt.Errorf("%s: there is no file %s: %w", c[0], word, errors.Join(err, os.ErrNotExist)))
			}
		}
	}
	return errs
}

var firstKey = regexp.MustCompile(`^(\{|["\w.-]+:( |\n)|\S+/\S+:\n)`)

// looksLikeYAML reports whether an unmarked block is YAML: its first line is a key, and it can be read.
func looksLikeYAML(text string) bool {
	var any map[string]any
	return firstKey.MatchString(text) &&
		(yaml.Unmarshal([]byte(text), &any) == nil || strings.Contains(text, "apiVersion:"))
}

// checkYAML checks manifests, incomplete manifests, and configurations of the agent.
func checkYAML(text string) (errs []error) {
	for document := range strings.SplitSeq(text, "\n---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			errs = append(errs, err)
			continue
		}
		keys := slices.Sorted(maps.Keys(object))
		switch {
		case object["apiVersion"] == "kind.x-k8s.io/v1alpha4": // of another program
		case object["kind"] != nil:
			errs = append(errs, checkManifest([]byte(document))...)
		case object["metadata"] != nil: // of a pod
			object["apiVersion"] = "v1"
			object["kind"] = "Pod"
			spec, _ := object["spec"].(map[string]any)
			if spec == nil {
				spec = map[string]any{}
			}
			if spec["containers"] == nil {
				spec["containers"] = []any{
					map[string]any{
						"name":      "a",
						"resources": map[string]any{"limits": map[string]any{"contivpp.io/memif": 16}},
					},
				}
			}
			object["spec"] = spec
			whole, err := yaml.Marshal(object)
			errs = append(errs, err)
			errs = append(errs, checkManifest(whole)...)
		case object["interfaces"] != nil && object["version"] != nil: // interfaces.json
			_, err := memif.ParseDescriptions([]byte(document))
			errs = append(errs, err)
		case object["cniVersion"] != nil || object["spec"] != nil ||
			strings.Contains(keys[0], "/"): // CNI, a part of an object, external configuration
		case values()[keys[0]] != nil:
			errs = append(errs, checkValues("", object, values()))
		default:
			errs = append(errs, checkConfiguration(object))
		}
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// checkConfiguration checks a part of the agent's configuration.
func checkConfiguration(object map[string]any) error {
	if object["pools"] == nil {
		object["pools"] = []any{map[string]any{"name": "p", "prefix": "10.255.0.0/16"}}
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	_, err = config.Parse(pflag.NewFlagSet("", pflag.ContinueOnError), "configuration", text, nil)
	return err
}

// values returns the default values of the chart.
var values = sync.OnceValue(func() (all map[string]any) {
	text, err := os.ReadFile("k8s/chart/weft/values.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &all)
	}
	if err != nil {
		panic(err)
	}
	return all
})

// checkValues reports keys that the chart's defaults do not have.
func checkValues(path string, object, defaults map[string]any) error {
	for key, value := range object {
		known, exists := defaults[key]
		if !exists && len(defaults) > 0 {
			return fmt.Errorf("the chart has no value %s%s", path, key)
		}
		below, isMap := value.(map[string]any)
		knownBelow, _ := known.(map[string]any)
		if isMap {
			if err := checkValues(path+key+".", below, knownBelow); err != nil {
				return err
			}
		}
	}
	return nil
}
