package weft_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The walks of ARCHITECTURE.md have lines with a directory and a function or method of its package.
func TestWalksNameExistingFunctions(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	walks := regexp.MustCompile("(?s)```walk\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(walks) != 4 {
		t.Errorf("ARCHITECTURE.md has %d walks, want 4", len(walks))
	}
	known := make(map[string]map[string]bool) // by directory
	for _, walk := range walks {
		for line := range strings.Lines(walk[1]) {
			line = strings.TrimSpace(line)
			slash := strings.LastIndex(line, "/") + 1
			name, function, _ := strings.Cut(line[slash:], ".")
			dir := line[:slash] + name
			if known[dir] == nil {
				known[dir] = functionsOf(t, dir)
			}
			if !known[dir][function] {
				t.Errorf("%s: package %s has no such function", line, dir)
			}
		}
	}
}

// functionsOf returns the functions of the package in a directory: "Name" or "Type.Name".
func functionsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	functions := make(map[string]bool)
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				functions[receiverOf(f)+f.Name.Name] = true
			}
		}
	}
	return functions
}

func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if star, is := of.(*ast.StarExpr); is {
		of = star.X
	}
	if generic, is := of.(*ast.IndexExpr); is {
		of = generic.X
	}
	if name, is := of.(*ast.Ident); is {
		return name.Name + "."
	}
	return ""
}
