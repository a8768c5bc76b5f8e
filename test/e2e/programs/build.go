package programs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// niceness gives other processes of the machine priority.
	niceness = 15
	// heartbeat is the interval of progress messages.
	heartbeat = 30 * time.Second
)

// builder compiles pinned programs into the cache.
type builder struct {
	pins, cache string
	progress    io.Writer
}

// job is one call of go build.
type job struct {
	folder, version string
	dir             string // of the programs
	flags           string // linker flags
	packages        []string
	outputs         map[string]string // name by go build -> our name
}

// build compiles into a temporary directory and renames it, so that an interrupted build leaves no partial directory.
func (b builder) build(ctx context.Context, j job) error {
	names := slices.Sorted(maps.Values(j.outputs))
	started := time.Now()
	fmt.Fprintf(b.progress, "e2e: building %s %s\n", strings.Join(names, ", "), j.version)
	unfinished := j.dir + ".unfinished"
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return fmt.Errorf("make a directory for %s: %w", j.folder, err)
	}
	defer os.RemoveAll(unfinished)
	if err := b.compile(ctx, j, unfinished); err != nil {
		return fmt.Errorf("build %s %s: %w", j.folder, j.version, err)
	}
	if err := os.MkdirAll(j.dir, 0o755); err != nil {
		return fmt.Errorf("make a directory for %s: %w", j.folder, err)
	}
	for from, to := range j.outputs {
		if err := os.Rename(filepath.Join(unfinished, from), filepath.Join(j.dir, to)); err != nil {
			return fmt.Errorf("keep %s: %w", to, err)
		}
	}
	fmt.Fprintf(b.progress, "e2e: built %s %s in %s\n", j.folder, j.version, time.Since(started).Round(time.Second))
	return nil
}

// compile runs go build at low priority.
func (b builder) compile(ctx context.Context, j job, into string) error {
	arguments := append([]string{
		"build", "-C", filepath.Join(b.pins, j.folder), "-trimpath", "-ldflags", strings.TrimSpace("-s -w " + j.flags),
		"-o", into + "/",
	}, j.packages...)
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOCACHE="+buildCache(b.cache))
	var output bytes.Buffer
	cmd.Stdout = &output
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, niceness) // optional
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	if err := b.wait(done, j); err != nil {
		return fmt.Errorf("%w: %s", err, lastLine(output.String()))
	}
	return nil
}

// wait waits for the build and prints its progress.
func (b builder) wait(done <-chan error, j job) error {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	started := time.Now()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			fmt.Fprintf(b.progress, "e2e: still building %s, %s so far\n", j.folder,
				time.Since(started).Round(time.Second))
		}
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
