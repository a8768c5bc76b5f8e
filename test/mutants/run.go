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
	"slices"
	"strings"
	"syscall"
	"time"
)

// checkTimeout is that of tests without a mutation, which may have to compile programs first.
const checkTimeout = 5 * time.Minute

// patience is the factor by which tests may take longer with a mutation than without, before they are ended.
const patience = 4

// outcome is what became of a mutation.
type outcome string

const (
	killed   outcome = "killed"
	survived outcome = "SURVIVED"
	// the tests do not end with the mutation, and end without it: it is noticed, but by no test
	hangs outcome = "HANGS"
	// the tests do not end in time without the mutation either: the machine is too slow now
	undecided outcome = "UNDECIDED"
	failed    outcome = "ERROR"
)

// tree is the tested source tree. It does not change: the compiler reads mutated files from elsewhere.
type tree struct {
	root    string
	scratch string // a directory for mutated files
}

// decide runs the tests with the mutation. It returns an error if they cannot run.
func (t tree) decide(ctx context.Context, m *mutation, limit time.Duration) (outcome, error) {
	content, err := m.apply(t.root)
	if err != nil {
		return failed, err
	}
	overlay, err := t.overlay(m, content)
	if err != nil {
		return failed, err
	}
	if out, err := t.run(ctx, overlay, filepath.Dir(m.file), "build", "-o", os.DevNull); err != nil {
		return failed, fmt.Errorf("line %d of the list: the mutation does not compile: %w\n%s", m.line, err, out)
	}
	out, err := t.test(ctx, overlay, m, limit)
	switch {
	case ctx.Err() != nil:
		return failed, ctx.Err()
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		return failed, fmt.Errorf("line %d of the list: the tests of the mutation do not compile:\n%s", m.line, out)
	case err == nil:
		return survived, nil
	case isTimeout(out):
		return t.whyTimeout(ctx, overlay, m, limit), nil
	}
	return killed, nil
}

// whyTimeout tells a mutation that makes tests hang from a machine that is slower than during the measurement.
func (t tree) whyTimeout(ctx context.Context, overlay string, m *mutation, limit time.Duration) outcome {
	if out, err := t.test(ctx, "", m, limit); err != nil && isTimeout(out) {
		return undecided
	}
	out, err := t.test(ctx, overlay, m, 2*limit)
	switch {
	case err == nil:
		return survived
	case isTimeout(out):
		return hangs
	}
	return killed
}

// isTimeout reports whether go test ended the tests.
func isTimeout(out string) bool { return strings.Contains(out, "panic: test timed out after") }

// noTests is the output of go test if a pattern matches no test.
var noTests = regexp.MustCompile(`\[no test(s to run| files)\]`)

// measure runs tests without a mutation: they must pass. It returns the time that they take.
func (t tree) measure(ctx context.Context, dir, pattern string) (time.Duration, error) {
	began := time.Now()
	out, err := t.test(ctx, "", &mutation{test: dir, run: pattern}, checkTimeout)
	took := time.Since(began)
	if err == nil && noTests.MatchString(out) {
		err = errors.New("no test matches")
	}
	if err != nil {
		return took, fmt.Errorf("tests %q of %s do not pass without a mutation: %w\n%s", pattern, dir, err, out)
	}
	return took, nil
}

// overlay writes the mutated file, and the overlay file for the compiler.
func (t tree) overlay(m *mutation, content []byte) (string, error) {
	dir, err := os.MkdirTemp(t.scratch, "")
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(dir, "mutated.go")
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(t.root, m.file): mutated}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(mutated, content, 0o600), os.WriteFile(overlay, text, 0o600))
}

// test runs the tests of a mutation, with it or, without overlay, without it.
func (t tree) test(ctx context.Context, overlay string, m *mutation, limit time.Duration) (string, error) {
	return t.run(ctx, overlay, m.test, "test", "-count=1", "-failfast", "-vet=off", "-timeout="+limit.String(), "-run",
		m.run)
}

// run runs the go command for a package. The overlay is in the environment, so that tests build programs with the
// mutation too. It kills processes that tests leave behind after a timeout.
func (t tree) run(ctx context.Context, overlay, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = filepath.Join(t.root, dir)
	// Programs that were built before would hide the mutation.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WEFT_PROGRAMS=") })
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = killGroup
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return "", err
	}
	err := cmd.Wait()
	_ = killGroup() // an error: no process is left
	return out.String(), err
}
