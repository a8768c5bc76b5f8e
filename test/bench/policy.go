package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// measurePolicy measures what ACLs add to a packet on weft-vswitch's packet path: of a session, and the first packet of a flow, with
// different numbers of rules. The benchmarks of the package need no node.
func measurePolicy(ctx context.Context, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "test", "./vswitch/forward", "-run", "^$", "-bench", "^Benchmark(Policy|Classifier)$", "-benchtime", "200x")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("benchmarks of the packet path: %w", err)
	}
	return nil
}
