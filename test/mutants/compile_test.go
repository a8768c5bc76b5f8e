package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listed is a package in the output of go list -json.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// The test checks the types of each mutated package against the compiled packages that it imports, which is faster than a build.
func TestEachMutationOfTheListCompiles(t *testing.T) {
	text, err := os.ReadFile("list.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	packages, exports := compiled(t, root, all)
	for _, m := range all {
		t.Run(fmt.Sprintf("line %d", m.line), func(t *testing.T) {
			t.Parallel()
			mutated, err := m.apply(root)
			if err != nil {
				t.Fatal(err)
			}
			if err := typeCheck(packages[filepath.Join(root, filepath.Dir(m.file))], filepath.Join(root, m.file), mutated, exports); err != nil {
				t.Errorf("%s: %v", m, err)
			}
		})
	}
}

// compiled returns the packages of the mutations, by directory, and the export data of all packages that they import.
func compiled(t *testing.T, root string, all []*mutation) (packages map[string]listed, exports map[string]string) {
	t.Helper()
	args := []string{"list", "-e", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,DepOnly"}
	for _, m := range all {
		args = append(args, "./"+filepath.Dir(m.file))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages, exports = make(map[string]listed), make(map[string]string)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, exports
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.Dir], exports[p.ImportPath] = p, p.Export
	}
}

// typeCheck returns the compiler's errors in a package with other content of one file.
func typeCheck(p listed, file string, content []byte, exports map[string]string) error {
	fset := token.NewFileSet()
	files := make([]*ast.File, 0, len(p.GoFiles))
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		var source any
		if path == file {
			source = content
		}
		parsed, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, parsed)
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	var errs []error
	config := types.Config{
		Importer: importer.ForCompiler(fset, "gc", lookup),
		Error:    func(err error) { errs = append(errs, err) },
	}
	_, _ = config.Check(p.ImportPath, fset, files, nil) // the errors are in errs
	return errors.Join(errs...)
}
