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

// testTimeout ends tests that hang because of a mutation, which counts as noticed.
const testTimeout = time.Minute

// checkTimeout is that of tests without a mutation, which may have to compile programs first.
const checkTimeout = 5 * time.Minute

// tree is the tested source tree. It does not change: the compiler reads mutated files from elsewhere.
type tree struct {
	root    string
	scratch string // a directory for mutated files
}

// isKilled reports whether the tests fail with the mutation. It returns an error if they cannot run.
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

// noTests is the output of go test if a pattern matches no test.
var noTests = regexp.MustCompile(`\[no test(s to run| files)\]`)

// check runs tests without a mutation: they must pass.
func (t tree) check(ctx context.Context, dir, pattern string) error {
	out, err := t.test(ctx, "", dir, pattern)
	if err == nil && noTests.MatchString(out) {
		err = errors.New("no test matches")
	}
	if err != nil {
		return fmt.Errorf("tests %q of %s do not pass without a mutation: %w\n%s", pattern, dir, err, out)
	}
	return nil
}

// overlay writes the mutated file, and the overlay file for the compiler.
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
	timeout := testTimeout
	if overlay == "" {
		timeout = checkTimeout
	}
	return t.run(ctx, overlay, dir, "test", "-count=1", "-failfast", "-vet=off", "-timeout="+timeout.String(), "-run", pattern)
}

// run runs the go command for a package. The overlay is in the environment, so that tests build programs with the mutation too. It kills
// processes that tests leave behind after a timeout.
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
	_ = killGroup() // an error: no process is left
	return out.String(), err
}
