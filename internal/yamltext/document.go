// Package yamltext reads texts of YAML and JSON documents and finds the lines of their values, for errors that name
// them.
package yamltext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// Document is one document of a text.
type Document struct {
	first int // its first line in the text, from 1
	raw   []byte
	root  *yaml.Node // nil: only the first line is known
	wrong string     // why it is not decoded; "": it is
}

// SyntaxError is the error of a document that is neither YAML nor JSON.
type SyntaxError struct {
	Line   int // in the text, from 1
	Reason string
}

// Error returns the reason without the line.
func (e *SyntaxError) Error() string { return e.Reason }

// Documents splits a text of YAML documents, or of JSON objects one after the other. Documents that are empty or have
// only comments are omitted.
func Documents(text []byte) []Document {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		if objects, err := jsonObjects(text); err == nil {
			return objects
		}
	}
	var all []Document
	for begin, line := 0, 1; begin < len(text); {
		end, next := endOfDocument(text, begin)
		if d := newDocument(text[begin:end], line); d != nil {
			all = append(all, *d)
		}
		if content, is := bytes.CutPrefix(text[end:next], []byte("---")); is && hasContent(content) {
			separator := line + bytes.Count(text[begin:end], []byte("\n"))
			all = append(all, Document{first: separator, wrong: "move the content after --- to the next line"})
		}
		line += bytes.Count(text[begin:next], []byte("\n"))
		begin = next
	}
	return all
}

// endOfDocument returns the end of the document at an offset, and the beginning of the next one. Like kubectl it takes
// each line that begins with --- as a separator; a line of three dots ends a document, too.
func endOfDocument(text []byte, begin int) (end, next int) {
	for at := begin; at < len(text); {
		rest := text[at:]
		length := bytes.IndexByte(rest, '\n') + 1
		if length == 0 {
			length = len(rest)
		}
		if bytes.HasPrefix(rest, []byte("---")) || string(bytes.TrimRight(rest[:length], " \t\r\n")) == "..." {
			return at, at + length
		}
		at += length
	}
	return len(text), len(text)
}

// hasContent reports whether the rest of a separator is more than a comment: kubectl refuses that, too.
func hasContent(rest []byte) bool {
	rest = bytes.TrimSpace(rest)
	return len(rest) > 0 && rest[0] != '#'
}

// jsonObjects splits JSON objects. It fails if the text is something else, such as YAML in braces.
func jsonObjects(text []byte) (all []Document, _ error) {
	d := json.NewDecoder(bytes.NewReader(text))
	for begin := 0; ; begin = int(d.InputOffset()) {
		var o json.RawMessage
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		// The YAML parser, which finds the lines, rejects tabs between values. JSON has no others.
		raw := bytes.ReplaceAll(text[begin:d.InputOffset()], []byte("\t"), []byte(" "))
		if document := newDocument(raw, 1+bytes.Count(text[:begin], []byte("\n"))); document != nil {
			all = append(all, *document)
		}
	}
}

// newDocument parses a document for its lines; nil: it has no content.
func newDocument(raw []byte, first int) *Document {
	var root yaml.Node
	if err := yaml.Unmarshal(raw, &root); err != nil {
		return &Document{first: first, raw: raw}
	}
	if root.Kind == 0 || len(root.Content) == 0 || isNull(root.Content[0]) {
		return nil
	}
	return &Document{first: first, raw: raw, root: root.Content[0]}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// inSyntaxError matches the lines of the YAML parser's errors.
var inSyntaxError = regexp.MustCompile(`line (\d+): (?s)(.*)`)

// Decode returns the value of the document with the types of encoding/json, as the API server and the agent read it. It
// uses the last value of a repeated key, see [Document.Repeated]. Its error is a *SyntaxError.
func (d *Document) Decode() (any, error) {
	if d.wrong != "" {
		return nil, &SyntaxError{Line: d.first, Reason: d.wrong}
	}
	var v any
	err := sigsyaml.Unmarshal(d.raw, &v)
	if err == nil {
		return v, nil
	}
	line := d.first
	reason := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
	if found := inSyntaxError.FindStringSubmatch(err.Error()); found != nil {
		n, _ := strconv.Atoi(found[1])
		line = d.first + n - 1
		reason = found[2]
	}
	return nil, &SyntaxError{Line: line, Reason: "invalid YAML: " + withoutGo(reason)}
}

// goTypes matches what errors of the libraries say about types of Go.
var goTypes = regexp.MustCompile(
	`(?is)(json: )?cannot unmarshal .*|json: unsupported .*|.*(invalid|unsupported) [a-z ]*key.*|.*(map\[|interface \{).*`)

// withoutGo replaces errors that name types of Go: only keys of another type than text have some.
func withoutGo(reason string) string { return goTypes.ReplaceAllString(reason, "a key is not a text") }

// Line returns the line of a value, that of its key if it has one. If the value is missing, it is the line of the
// closest value around it.
func (d *Document) Line(path Path) int {
	line := d.first
	if d.root == nil {
		return line
	}
	line = d.lineOf(d.root)
	for n := d.root; len(path) > 0; path = path[1:] {
		key, value := member(resolve(n), path[0], 0)
		if value == nil {
			return line
		}
		line = d.lineOf(key)
		n = value
	}
	return line
}

func (d *Document) lineOf(n *yaml.Node) int { return d.first + n.Line - 1 }

// deepest bounds the aliases and merges that are followed: a document can refer to itself.
const deepest = 100

// resolve follows aliases.
func resolve(n *yaml.Node) *yaml.Node {
	for range deepest {
		if n.Kind != yaml.AliasNode {
			break
		}
		n = n.Alias
	}
	return n
}

// member returns the key and the value of a step of a path. The key of an item of a list is the item.
func member(n *yaml.Node, step any, depth int) (key, value *yaml.Node) {
	if depth > deepest {
		return nil, nil
	}
	switch step := step.(type) {
	case int:
		if n.Kind == yaml.SequenceNode && step < len(n.Content) {
			return n.Content[step], n.Content[step]
		}
	case string:
		if n.Kind != yaml.MappingNode {
			return nil, nil
		}
		for i := len(n.Content) - 2; i >= 0; i -= 2 { // the last of several is used
			if n.Content[i].Value == step {
				return n.Content[i], n.Content[i+1]
			}
		}
		return merged(n, step, depth)
	}
	return nil, nil
}

// merged searches the mappings of << in a mapping.
func merged(n *yaml.Node, step string, depth int) (key, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != "<<" {
			continue
		}
		from := resolve(n.Content[i+1])
		if from.Kind != yaml.SequenceNode {
			from = &yaml.Node{Content: []*yaml.Node{from}}
		}
		for _, m := range from.Content {
			if key, value := member(resolve(m), step, depth+1); value != nil {
				return key, value
			}
		}
	}
	return nil, nil
}

// Problem is an error in a value of a document.
type Problem struct {
	Path   Path
	Line   int
	Reason string
}

// Repeated returns a problem for each key that a mapping has twice, in the order of the text.
func (d *Document) Repeated() (problems []Problem) {
	if d.root == nil {
		return nil
	}
	var walk func(n *yaml.Node, at Path)
	walk = func(n *yaml.Node, at Path) {
		seen := make(map[string]int)
		for i, c := range n.Content {
			switch {
			case n.Kind == yaml.SequenceNode:
				walk(c, at.With(i))
			case n.Kind == yaml.MappingNode && i%2 == 1:
				walk(c, at.With(n.Content[i-1].Value))
			case n.Kind == yaml.MappingNode && c.Kind == yaml.ScalarNode && c.Value != "<<":
				if first, is := seen[c.Value]; is {
					problems = append(problems, Problem{
						at.With(c.Value), d.lineOf(c), fmt.Sprintf("the key is already set in line %d", first),
					})
				} else {
					seen[c.Value] = d.lineOf(c)
				}
			}
		}
	}
	walk(d.root, nil)
	return problems
}
