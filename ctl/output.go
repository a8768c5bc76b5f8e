package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

const formats = "table, json or yaml"

func checkFormat(format string) error {
	if !slices.Contains([]string{"table", "json", "yaml"}, format) {
		return usageError{fmt.Errorf("--output %q: must be %s", format, formats)}
	}
	return nil
}

// show prints a reply: with the function table, or as one JSON or YAML document.
func (c *client) show(reply proto.Message, table func()) error {
	if c.format == "table" {
		table()
		return nil
	}
	return c.document(documentOf(reply.ProtoReflect()))
}

// document prints one value as JSON or YAML.
func (c *client) document(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if c.format == "yaml" {
		if b, err = yaml.JSONToYAML(b); err != nil {
			return fmt.Errorf("output: %w", err)
		}
	}
	fmt.Fprintln(c.env.Out, strings.TrimSuffix(string(b), "\n"))
	return nil
}

// streamed prints one value of a stream: a line of JSON, or a YAML document.
func (c *client) streamed(v any) error {
	if c.format == "yaml" {
		fmt.Fprintln(c.env.Out, "---")
		return c.document(v)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	fmt.Fprintln(c.env.Out, string(b))
	return nil
}

func (c *client) printf(format string, args ...any) { fmt.Fprintf(c.env.Out, format, args...) }

// grid is a table without borders.
type grid struct{ table.Writer }

func newGrid(header ...any) grid {
	g := grid{table.NewWriter()}
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	g.SetStyle(style)
	g.SuppressTrailingSpaces()
	if len(header) > 0 {
		g.AppendHeader(header)
	}
	return g
}

func (g grid) row(cells ...any) { g.AppendRow(cells) }

// printGrid prints a table, or the text empty if the table has no rows.
func (c *client) printGrid(g grid, empty string) {
	if g.Length() == 0 {
		c.printf("%s\n", empty)
		return
	}
	c.printf("%s\n", g.Render())
}

// wantsColour reports whether out is a terminal and the environment allows colours (https://no-color.org).
func wantsColour(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (c *client) good(s string) string { return c.coloured("32", s) }
func (c *client) bad(s string) string  { return c.coloured("31", s) }

func (c *client) coloured(code, s string) string {
	if !c.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
