// Package pages reads the Markdown pages of the repository for tests: links, anchors, code blocks, and the commands in
// them.
package pages

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extensionast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// Page is a Markdown file.
type Page struct {
	Path    string // relative to the root
	Links   []Link
	Anchors map[string]bool // of its headings, as GitHub makes them
	Blocks  []Block
	Spans   []Span
	Texts   []Text
	Empty   []Text // headings without content: the next line is a heading of the same or a higher level, or the end
}

// Text is the text of a paragraph, heading, list item or table cell, without markup.
type Text struct {
	Line  int
	Text  string
	Prose string // Text without code
	Cell  bool   // of a table
}

// Span is code within a line.
type Span struct {
	Line int
	Text string
}

// Link is the target of a link or picture.
type Link struct {
	Line   int
	Target string
}

// Block is a code block.
type Block struct {
	Line     int
	Fenced   bool
	Language string // of a fenced block
	Text     string
}

// picture matches the file of a picture in HTML.
var picture = regexp.MustCompile(`\bsrc(?:set)?="([^"]+)"`)

// All reads the pages below root, without those of hidden, built and test data directories.
func All(root string) (all []Page, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root &&
			(entry.Name() == "bin" || entry.Name() == "testdata" ||
				strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".github") {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		all = append(all, Parse(relative, source))
		return err
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s has no pages", root)
	}
	return all, err
}

// Parse reads a page.
func Parse(path string, source []byte) Page {
	p := Page{Path: path, Anchors: map[string]bool{}}
	document := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	line := func(n ast.Node) int {
		for ; n != nil; n = n.Parent() {
			if n.Type() == ast.TypeBlock && n.Lines().Len() > 0 {
				return 1 + bytes.Count(source[:n.Lines().At(0).Start], []byte("\n"))
			}
		}
		return 0
	}
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // fails only if the function does
		if !entering {
			return ast.WalkContinue, nil
		}
		if hasText(n) {
			_, cell := n.(*extensionast.TableCell)
			p.Texts = append(p.Texts, Text{line(n.FirstChild()), plain(n, source), prose(n, source), cell})
		}
		switch n := n.(type) {
		case *ast.Heading:
			p.addAnchor(plain(n, source))
			next, isHeading := n.NextSibling().(*ast.Heading)
			if n.NextSibling() == nil || isHeading && next.Level <= n.Level {
				p.Empty = append(p.Empty, Text{Line: line(n), Text: plain(n, source)})
			}
		case *ast.Link:
			p.Links = append(p.Links, Link{line(n), string(n.Destination)})
		case *ast.Image:
			p.Links = append(p.Links, Link{line(n), string(n.Destination)})
		case *ast.HTMLBlock:
			p.addPictures(line(n), n.Lines().Value(source))
		case *ast.RawHTML:
			p.addPictures(line(n), n.Segments.Value(source))
		case *ast.CodeSpan:
			p.Spans = append(p.Spans, Span{line(n), plain(n, source)})
		case *ast.CodeBlock:
			p.Blocks = append(p.Blocks, Block{Line: line(n), Text: string(n.Lines().Value(source))})
		case *ast.FencedCodeBlock:
			p.Blocks = append(p.Blocks, Block{
				Line:     line(n),
				Fenced:   true,
				Language: string(n.Language(source)),
				Text:     string(n.Lines().Value(source)),
			})
		}
		return ast.WalkContinue, nil
	})
	return p
}

// addPictures adds the files of pictures in HTML.
func (p *Page) addPictures(line int, html []byte) {
	for _, m := range picture.FindAllSubmatch(html, -1) {
		p.Links = append(p.Links, Link{line, string(m[1])})
	}
}

// addAnchor adds the anchor that GitHub gives to a heading; a repeated heading gets a number.
func (p *Page) addAnchor(heading string) {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	anchor := b.String()
	for i := 1; p.Anchors[anchor]; i++ {
		anchor = fmt.Sprintf("%s-%d", b.String(), i)
	}
	p.Anchors[anchor] = true
}

// hasText reports whether the children of a node are inline: text, code, links.
func hasText(n ast.Node) bool {
	return n.Type() == ast.TypeBlock && n.FirstChild() != nil && n.FirstChild().Type() == ast.TypeInline
}

// plain returns the text of a node without markup.
func plain(n ast.Node, source []byte) string {
	return textOf(n, source, func(ast.Node) bool { return true })
}

// prose is plain without code.
func prose(n ast.Node, source []byte) string {
	return textOf(n, source, func(n ast.Node) bool { return n.Kind() != ast.KindCodeSpan })
}

// textOf returns the text of those nodes below n that include accepts. A line break is a space.
func textOf(n ast.Node, source []byte, include func(ast.Node) bool) string {
	var b strings.Builder
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		if !include(child) {
			continue
		}
		if t, is := child.(*ast.Text); is {
			b.Write(t.Value(source))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
		} else {
			b.WriteString(textOf(child, source, include))
		}
	}
	return b.String()
}
