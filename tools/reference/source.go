package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// source is a file of the product.
type source struct {
	path string // relative to the root
	text string
}

// productSources returns the product's Go files without tests and generated code.
func productSources(root string) (sources []source, err error) {
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path, err := filepath.Rel(root, file)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == "test" || path == "tools" || path == "bin" || path == "memif/examples" ||
			strings.HasSuffix(path, "test") || path != "." && strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasSuffix(path, ".pb.go"):
			return nil
		}
		text, err := os.ReadFile(file)
		sources = append(sources, source{path, string(text)})
		return err
	})
	return sources, err
}

func (s source) parse() (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), s.path, s.text, parser.SkipObjectResolution)
}

// constant returns a constant text, also of parts that are joined by +, and of names with known values; "" for another
// expression.
func constant(e ast.Expr, names map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, _ := strconv.Unquote(e.Value)
			return s
		}
	case *ast.Ident:
		return names[e.Name]
	case *ast.BinaryExpr:
		x := constant(e.X, names)
		y := constant(e.Y, names)
		if x != "" && y != "" {
			return x + y
		}
	}
	return ""
}

// cell escapes a text for a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
