package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/weftnet/weft/test/bench/packets"
)

// measurePolicy measures what policies cost the agent: from the API server to packets, ADDs, and memory; what ACLs add
// to a packet on weft-vswitch's packet path: of a session, and the first packet of a flow, with different numbers of
// rules; and the same between memifs, beside the VPP that WEFT_VPP names.
func measurePolicy(ctx context.Context, out io.Writer, programs string) error {
	figures := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=30m", "-run", "^TestPolicyFigures$",
		"-policy-figures")
	figures.Dir = "agent" // go test hides the output of a package that an argument names
	figures.Stdout = out
	figures.Stderr = os.Stderr
	if err := figures.Run(); err != nil {
		return fmt.Errorf("delay of policies: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "./vswitch/forward", "-run", "^$", "-bench",
		"^Benchmark(Policy|Classifier)$", "-benchtime", "200x")
	cmd.Stdout = out
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("benchmarks of the packet path: %w", err)
	}
	return packets.Run(ctx, packets.Config{
		Out:        out,
		Programs:   programs,
		Rounds:     1,
		Duration:   time.Second,
		OnlyPolicy: true,
	})
}
