package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// testTimeout ends tests that a mutation makes wait for ever, which counts as noticed.
const testTimeout = time.Minute

// tree is the tree of sources that is tested. It is never changed: the compiler reads mutated files from elsewhere.
type tree struct {
	root    string
	scratch string // a directory for mutated files
}

// isKilled reports whether the tests fail with the mutation. An error says that this cannot be told.
func (t tree) isKilled(ctx context.Context, m *mutation) (bool, error) {
	content, err := m.apply(t.root)
	if err != nil {
		return false, err
	}
	overlay, err := t.overlay(m, content)
	if err != nil {
		return false, err
	}
	if out, err := t.run(ctx, overlay, filepath.Dir(m.file), "build", "-o", os.DevNull); err != nil {
		return false, fmt.Errorf("line %d of the list: the mutation does not compile: %w\n%s", m.line, err, out)
	}
	out, err := t.test(ctx, overlay, m.test, m.run)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		return false, fmt.Errorf("line %d of the list: the tests of the mutation do not compile:\n%s", m.line, out)
	}
	return err != nil, nil
}

// noTests is what go test says if a pattern matches none.
var noTests = regexp.MustCompile(`\[no test(s to run| files)\]`)

// check makes sure that tests pass without a mutation: if they fail, they notice nothing.
func (t tree) check(ctx context.Context, dir, pattern string) error {
	out, err := t.test(ctx, "", dir, pattern)
	if err == nil && noTests.MatchString(out) {
		err = errors.New("there are none")
	}
	if err != nil {
		return fmt.Errorf("tests %q of %s do not pass without a mutation: %w\n%s", pattern, dir, err, out)
	}
	return nil
}

// overlay writes the mutated file, and the file that tells the compiler to use it.
func (t tree) overlay(m *mutation, content []byte) (string, error) {
	dir, err := os.MkdirTemp(t.scratch, "")
	if err != nil {
		return "", err
	}
	mutated, overlay := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(t.root, m.file): mutated}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(mutated, content, 0o600), os.WriteFile(overlay, text, 0o600))
}

func (t tree) test(ctx context.Context, overlay, dir, pattern string) (string, error) {
	return t.run(ctx, overlay, dir, "test", "-count=1", "-failfast", "-vet=off", "-timeout="+testTimeout.String(), "-run", pattern)
}

// run calls Go for a package. The overlay is in the environment: tests that build programs build them with the mutation. The processes
// that tests leave behind when they are ended by a timeout are killed.
func (t tree) run(ctx context.Context, overlay, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = filepath.Join(t.root, dir)
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = killGroup, time.Second
	if err := cmd.Start(); err != nil {
		return "", err
	}
	err := cmd.Wait()
	_ = killGroup() // an error: all of them have ended
	return out.String(), err
}
