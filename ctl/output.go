package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/proto/document"
)

const formats = "table, wide, json, yaml, name or jsonpath=TEMPLATE"

// formatWords begin the output formats, for completion.
var formatWords = []string{"table", "wide", "json", "yaml", "name", jsonPathFormat}

func checkFormat(format string) error {
	if strings.HasPrefix(format, jsonPathFormat) {
		_, err := jsonPath(format)
		return err
	}
	if !slices.Contains([]string{"table", "wide", "json", "yaml", "name"}, format) {
		return usageError{fmt.Errorf("--output %q: must be %s", format, formats)}
	}
	return nil
}

// printer writes the output of a command.
type printer struct {
	out    io.Writer
	now    func() time.Time // ages are relative to it; its time zone is the operator's
	format string           // one of formats
	wide   bool             // all columns, of any width
	width  int              // of the output, in columns
	colour bool
}

// checkedWriter keeps the first error of the writer, and calls failed then: a full disk ends a command with an error.
type checkedWriter struct {
	io.Writer
	failed func()
	err    error
}

// Write writes to the writer.
func (w *checkedWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil && w.err == nil {
		w.err = err
		w.failed()
	}
	return n, err
}

// errNoNames rejects -o name of a command that lists no objects.
var errNoNames = usageError{errors.New("-o name: the output of this command has no names")}

// show prints a reply or another value: with the function table, as the names of its rows, or as one JSON or YAML
// document.
func (p *printer) show(v any, table func()) error {
	switch p.format {
	case "table":
		table()
		return nil
	case "name":
		names, ok := namesOf(v)
		if !ok {
			return errNoNames
		}
		for _, name := range names {
			p.printf("%s\n", oneLine(name))
		}
		return nil
	}
	if m, ok := v.(proto.Message); ok {
		v = document.Of(m.ProtoReflect())
	}
	return p.document(v)
}

// document prints one value as JSON or YAML, or the parts that a template selects.
func (p *printer) document(v any) error {
	switch {
	case strings.HasPrefix(p.format, jsonPathFormat):
		return p.selected(v)
	case p.format == "name":
		return errNoNames
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	b = escapeControls(b)
	if p.format == "yaml" {
		if b, err = yaml.JSONToYAML(b); err != nil {
			return fmt.Errorf("output: %w", err)
		}
		b = []byte(printable(string(b))) // YAML does not escape all of them
	}
	p.printf("%s\n", strings.TrimSuffix(string(b), "\n"))
	return nil
}

// streamed prints one value of a stream: a line of JSON, or a YAML document.
func (p *printer) streamed(v any) error {
	if p.format == "yaml" {
		p.printf("---\n")
	}
	if p.format != "json" {
		return p.document(v)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	p.printf("%s\n", escapeControls(b))
	return nil
}

// escapeControls escapes the characters that JSON permits in strings and that a terminal interprets, and replaces
// invalid characters: documents of nodes are untrusted.
func escapeControls(document []byte) []byte {
	b := make([]byte, 0, len(document))
	for _, r := range string(document) {
		if r == utf8.RuneError || r != '\n' && isInterpreted(r) {
			b = fmt.Appendf(b, "\\u%04x", r)
			continue
		}
		b = utf8.AppendRune(b, r)
	}
	return b
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

// wantsColour reports whether out is a terminal and the environment allows colours (https://no-color.org).
func wantsColour(out io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(out)
}

func isTerminal(out io.Writer) bool {
	if checked, ok := out.(*checkedWriter); ok {
		out = checked.Writer
	}
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (p *printer) good(s string) string { return p.coloured("32", s) }
func (p *printer) bad(s string) string  { return p.coloured("31", s) }

func (p *printer) coloured(code, s string) string {
	if !p.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
