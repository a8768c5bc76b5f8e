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

// Set are the programs of a cluster, and what they need in their environment.
type Set struct {
	paths     map[string]string
	search    []string // directories for PATH
	libraries []string // directories for LD_LIBRARY_PATH
	shared    []string
}

// Path is where a program is.
func (s *Set) Path(name string) string { return s.paths[name] }

// Env is the environment of this process, in which programs find each other and their libraries.
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

// Find gives the programs that are in the cache or on the machine; the error names those that are not.
func Find(pins string) (*Set, error) {
	cache, err := Cache()
	if err != nil {
		return nil, err
	}
	s := &Set{paths: map[string]string{}, shared: []string{cache}}
	var missing []error
	for _, p := range pinned {
		if err := s.add(p, pins, cache); err != nil {
			missing = append(missing, err)
		}
	}
	if err := s.addDebian(cache); err != nil {
		missing = append(missing, err)
	}
	return s, errors.Join(missing...)
}

// add puts the programs of a pin into the set.
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

// Ensure gives the programs, after building those of the folder pins that are missing and after unpacking the missing
// packages of the distribution. It tells progress, since a first build takes minutes.
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
	for _, p := range pinned {
		if err := p.ensure(ctx, builder{pins: pins, cache: cache, progress: progress}); err != nil {
			return nil, err
		}
	}
	if err := os.RemoveAll(buildCache(cache)); err != nil {
		return nil, fmt.Errorf("remove the build cache: %w", err)
	}
	return Find(pins)
}

// Shared are the directories that programs need wherever they run.
func (s *Set) Shared() []string { return s.shared }
