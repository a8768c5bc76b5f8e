// Package programs builds or finds the programs that a cluster is made of.
package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Set is the set of a cluster's programs, and their environment.
type Set struct {
	paths     map[string]string
	search    []string // directories for PATH
	libraries []string // directories for LD_LIBRARY_PATH
	shared    []string
}

// Path returns the path of a program.
func (s *Set) Path(name string) string { return s.paths[name] }

// Env returns the environment of this process, extended such that programs find each other and their libraries.
func (s *Set) Env() []string {
	env := os.Environ()
	env = append(env, "PATH="+join(s.search, os.Getenv("PATH")))
	if len(s.libraries) > 0 {
		env = append(env, "LD_LIBRARY_PATH="+join(s.libraries, os.Getenv("LD_LIBRARY_PATH")))
	}
	return env
}

func join(dirs []string, rest string) string {
	if rest != "" {
		dirs = append(dirs[:len(dirs):len(dirs)], rest)
	}
	return strings.Join(dirs, string(os.PathListSeparator))
}

// Find returns the programs that are in the cache or on the machine; the error lists missing ones.
func Find(pins string) (*Set, error) {
	cache, err := Cache()
	if err != nil {
		return nil, err
	}
	s := &Set{paths: map[string]string{}, shared: []string{cache}}
	var missing []error
	for _, p := range requested() {
		if err := s.add(p, pins, cache); err != nil {
			missing = append(missing, err)
		}
	}
	if err := s.addDebian(cache); err != nil {
		missing = append(missing, err)
	}
	return s, errors.Join(missing...)
}

// add adds the programs of a pin to the set.
func (s *Set) add(p pin, pins, cache string) error {
	dir, err := p.directory(pins, cache)
	if err != nil {
		return err
	}
	if absent := p.absent(dir); len(absent) > 0 {
		return fmt.Errorf("%s is not built yet", strings.Join(absent, ", "))
	}
	for name := range p.programs {
		s.paths[name] = filepath.Join(dir, name)
	}
	s.search = append(s.search, dir)
	return nil
}

// Ensure returns the programs, after building missing ones of the directory pins and unpacking missing packages of the
// distribution. It prints progress, because a first build takes minutes.
func Ensure(ctx context.Context, pins string, progress io.Writer) (*Set, error) {
	if s, err := Find(pins); err == nil {
		return s, nil
	}
	cache, err := Cache()
	if err != nil {
		return nil, err
	}
	unlock, err := lock(cache)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := ensureDebian(ctx, cache, progress); err != nil {
		return nil, err
	}
	for _, p := range requested() {
		if err := p.ensure(ctx, builder{pins: pins, cache: cache, progress: progress}); err != nil {
			return nil, err
		}
	}
	if err := os.RemoveAll(buildCache(cache)); err != nil {
		return nil, fmt.Errorf("remove the build cache: %w", err)
	}
	return Find(pins)
}

// Shared returns the directories that programs need at run time.
func (s *Set) Shared() []string { return s.shared }
