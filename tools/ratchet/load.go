package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// tree is the product: its packages without tests, packages for tests and generated files.
type tree struct {
	root     string
	files    *token.FileSet
	packages []*source
	// used has the exported names that product code uses outside of their declarations.
	used map[string]bool
	// methods has the names of methods of all interfaces: a method with such a name may have callers that are not seen.
	methods map[string]bool
}

// source is one package.
type source struct {
	path  string // in the module
	files []*file
	info  *types.Info
	of    *types.Package
}

type file struct {
	*ast.File
	name  string // path in the module
	lines []string
}

func load(root string) (*tree, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, files: token.NewFileSet(), used: make(map[string]bool), methods: make(map[string]bool)}
	const mode = packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes |
		packages.NeedTypesInfo | packages.NeedImports | packages.NeedModule
	found, err := packages.Load(&packages.Config{Mode: mode, Dir: root, Fset: t.files}, "./...")
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("%s: %w", p.PkgPath, p.Errors[0])
		}
		if p.Module == nil {
			return nil, errors.New("there is no module")
		}
		path := strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, p.Module.Path), "/")
		if isForTests(path) {
			continue
		}
		s := &source{path: path, info: p.TypesInfo, of: p.Types}
		for _, parsed := range p.Syntax {
			if err := t.add(s, parsed); err != nil {
				return nil, err
			}
		}
		if len(s.files) > 0 {
			t.packages = append(t.packages, s)
		}
	}
	for _, s := range t.packages {
		t.collect(s)
	}
	return t, nil
}

func isForTests(path string) bool {
	elements := strings.Split(path, "/")
	return elements[0] == "test" || strings.HasSuffix(elements[len(elements)-1], "test")
}

func (t *tree) add(s *source, parsed *ast.File) error {
	path := t.files.Position(parsed.Pos()).Filename
	name, err := filepath.Rel(t.root, path)
	if err != nil || strings.HasPrefix(name, "..") || ast.IsGenerated(parsed) {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s.files = append(s.files, &file{File: parsed, name: name, lines: strings.Split(string(content), "\n")})
	return nil
}

// collect records the names that a package uses, and the methods of interfaces that it declares or imports.
func (t *tree) collect(s *source) {
	for _, o := range s.info.Uses {
		if key := keyOf(o); key != "" {
			t.used[key] = true
		}
		if name, isType := o.(*types.TypeName); isType {
			if i, isInterface := name.Type().Underlying().(*types.Interface); isInterface {
				for m := range i.Methods() {
					t.methods[m.Name()] = true
				}
			}
		}
	}
	for e, of := range s.info.Types { // also interfaces without a name
		if _, isInterface := e.(*ast.InterfaceType); isInterface {
			for m := range of.Type.(*types.Interface).Methods() {
				t.methods[m.Name()] = true
			}
		}
	}
}

// keyOf identifies an exported object of a package scope, or a method, in all packages that import it; "": another one.
func keyOf(o types.Object) string {
	if o == nil || o.Pkg() == nil || !o.Exported() {
		return ""
	}
	if f, isFunc := o.(*types.Func); isFunc {
		return f.Origin().FullName()
	}
	if o.Parent() != o.Pkg().Scope() {
		return ""
	}
	return o.Pkg().Path() + "." + o.Name()
}

// at returns the place of a node.
func (t *tree) at(f *file, n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.name, t.files.Position(n.Pos()).Line)
}

// sorted returns the places in order, without duplicates.
func sorted(places []string) []string {
	slices.Sort(places)
	return slices.Compact(places)
}
