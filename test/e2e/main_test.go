// Package e2e_test runs pods on a real Kubernetes cluster (package cluster), which starts and ends with the tests.
package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/machine"
	"github.com/weftnet/weft/test/e2e/programs"
	"github.com/weftnet/weft/test/e2e/stage"
)

// keep is the environment variable that keeps the cluster after the tests until an interrupt.
const keep = "WEFT_E2E_KEEP"

// pins is the directory of modules that pin the cluster's programs.
const pins = "pins"

// The cluster is started once for all tests; where that is not possible, tests are skipped with the reason.
var (
	theCluster *cluster.Cluster
	missing    error
)

func TestMain(m *testing.M) {
	flag.Parse()
	if machine.IsInit() {
		os.Exit(machine.Init(os.Stderr))
	}
	if s, inside := stage.Inside(); inside {
		os.Exit(perform(m, s))
	}
	os.Exit(prepare(m))
}

// prepare finds the programs of a cluster and runs the tests on a stage.
func prepare(m *testing.M) (code int) {
	if flag.Lookup("test.list").Value.String() != "" {
		return m.Run()
	}
	if missing = possible(); missing != nil {
		fmt.Fprintln(os.Stderr, "e2e: skipped:", missing)
		if strings.Contains(os.Getenv("WEFT_REQUIRE"), "e2e") {
			return 1
		}
		return m.Run()
	}
	cache, err := programs.Cache()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	code, err = stage.Enter(filepath.Join(cache, "runs"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return max(code, 1)
	}
	return code
}

// possible returns what a cluster needs and this process lacks.
func possible() error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root: containers, cgroups and namespaces of every kind")
	}
	_, err := programs.Ensure(context.Background(), pins, os.Stderr)
	return err
}

// perform starts the cluster on the stage, runs the tests and stops the cluster.
func perform(m *testing.M, s stage.Stage) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	people := stage.Unbuffered()
	pid, err := s.Settle()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: make the stage:", err)
		return 1
	}
	c, err := bringUp(ctx, s)
	defer func() {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: stop the cluster:", err)
			code = max(code, 1)
		}
		if code != 0 {
			fmt.Fprintln(os.Stderr, "e2e: logs are in", s.Logs())
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: start the cluster:", err)
		return 1
	}
	theCluster = c
	// An interrupt ends the run at once: the stage ends with this process.
	atOnce := context.AfterFunc(ctx, func() { os.Exit(1) })
	if code = m.Run(); code == 0 {
		if err := c.AwaitNoLeftovers(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: after all tests:", err)
			code = 1
		}
	}
	atOnce()
	if os.Getenv(keep) != "" {
		fmt.Fprint(people, stage.Kept{
			PID: pid, Kubeconfig: c.Control.Kubeconfig(), Kubectl: c.Programs().Path("kubectl"),
			Timeout: flag.Lookup("test.timeout").Value.String(),
		})
		<-ctx.Done()
	}
	return code
}

func bringUp(ctx context.Context, s stage.Stage) (*cluster.Cluster, error) {
	none := &cluster.Cluster{}
	set, err := programs.Find(pins)
	if err != nil {
		return none, err
	}
	cni, err := chosenCNI()
	if err != nil {
		return none, err
	}
	podProgram := filepath.Join(s.Disk(), "e2e-pod")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", podProgram, "./e2e-pod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return none, fmt.Errorf("build the pods' program: %w: %s", err, output)
	}
	return cluster.Start(ctx, cluster.Config{
		Stage: s, Programs: set, Nodes: []string{"n1", "n2"}, CNI: cni,
		Images: cluster.StandardImages(podProgram), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

// need returns the cluster, or skips the test.
func need(t *testing.T) *cluster.Cluster {
	t.Helper()
	if missing != nil {
		t.Skip(missing)
	}
	return theCluster
}
