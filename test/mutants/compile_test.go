package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed is a package in the output of go list -json.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// The test checks the types of each mutated package against the compiled packages that it imports, which is faster than
// a build.
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
	mutations := make(map[string][]*mutation)
	for _, m := range all {
		dir := filepath.Join(root, filepath.Dir(m.file))
		mutations[dir] = append(mutations[dir], m)
	}
	for dir, ofPackage := range mutations {
		t.Run(strings.TrimPrefix(dir, root+"/"), func(t *testing.T) {
			t.Parallel()
			c, err := newChecker(packages[dir], exports)
			if err != nil {
				t.Fatal(err)
			}
			for _, round := range rounds(ofPackage) {
				if c.check(root, round) == nil {
					continue
				}
				for _, m := range round {
					if err := c.check(root, []*mutation{m}); err != nil {
						t.Errorf("line %d, %s: %v", m.line, m, err)
					}
				}
			}
		})
	}
}

// rounds groups the mutations of a package, at most one of each file: one check of the package serves all of a round.
func rounds(mutations []*mutation) [][]*mutation {
	var all [][]*mutation
	used := make(map[string]int) // rounds that have a mutation of the file
	for _, m := range mutations {
		i := used[m.file]
		used[m.file]++
		if i == len(all) {
			all = append(all, nil)
		}
		all[i] = append(all[i], m)
	}
	return all
}

// compiled returns the packages of the mutations, by directory, and the export data of all packages that they import.
func compiled(t *testing.T, root string, all []*mutation) (packages map[string]listed, exports map[string]string) {
	t.Helper()
	args := []string{"list", "-e", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,DepOnly"}
	for _, m := range all {
		args = append(args, "./"+filepath.Dir(m.file))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages = make(map[string]listed)
	exports = make(map[string]string)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, exports
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.Dir] = p
		exports[p.ImportPath] = p.Export
	}
}

// checker reports the compiler's errors in a package. What the package imports is read once.
type checker struct {
	path     string
	fset     *token.FileSet
	files    map[string]*ast.File
	importer types.Importer
}

func newChecker(p listed, exports map[string]string) (*checker, error) {
	c := &checker{path: p.ImportPath, fset: token.NewFileSet(), files: make(map[string]*ast.File)}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, name := range p.GoFiles {
		file := filepath.Join(p.Dir, name)
		parsed, err := parser.ParseFile(c.fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.files[file] = parsed
	}
	return c, nil
}

// check returns the errors of the package with the mutations, of which each is in another file.
func (c *checker) check(root string, mutations []*mutation) error {
	files := maps.Clone(c.files)
	for _, m := range mutations {
		mutated, err := m.apply(root)
		if err != nil {
			return err
		}
		file := filepath.Join(root, m.file)
		files[file], err = parser.ParseFile(c.fset, file, mutated, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
	}
	var errs []error
	config := types.Config{Importer: c.importer, Error: func(err error) { errs = append(errs, err) }}
	_, _ = config.Check(c.path, c.fset, slices.Collect(maps.Values(files)), nil) // the errors are in errs
	return errors.Join(errs...)
}
