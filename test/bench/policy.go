package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// measurePolicy measures what ACLs add to a packet on weft-vswitch's packet path: of a session, and the first packet of a flow, with
// different numbers of rules; then what policies cost the agent: from the API server to packets, ADDs, and memory.
func measurePolicy(ctx context.Context, out io.Writer) error {
	figures := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=30m", "-run", "^TestPolicyFigures$", "-policy-figures")
	figures.Dir = "agent" // go test hides the output of a package that an argument names
	figures.Stdout, figures.Stderr = out, os.Stderr
	if err := figures.Run(); err != nil {
		return fmt.Errorf("delay of policies: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "./vswitch/forward", "-run", "^$", "-bench", "^Benchmark(Policy|Classifier)$", "-benchtime", "200x")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("benchmarks of the packet path: %w", err)
	}
	return nil
}
