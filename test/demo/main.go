// Command demo runs pods on a private node: pods with several interfaces each, one that fails, a crash, and a
// comparison of the node before and after.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
)

func main() {
	keep := flag.Bool("keep", false, "leave everything running until interrupted, for weftctl")
	programs := flag.String("programs", "bin", "directory of weft-agent, weft-cni, weft-vswitch and weftctl")
	cast := flag.String("record", "", "write a recording of the output to this file, in the format asciicast v2")
	flag.Parse()
	if err := netns.Enter(); err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := recorded(ctx, *cast, *programs, *keep); err != nil {
		stop()
		fail(err)
	}
}

// recorded runs the demo, and writes a recording if a file is named.
func recorded(ctx context.Context, cast, programs string, keep bool) (err error) {
	if cast == "" {
		return run(ctx, os.Stdout, programs, keep)
	}
	file, err := os.Create(cast)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	r, err := newRecording(os.Stdout, file, time.Now)
	if err != nil {
		return err
	}
	return run(ctx, r, programs, keep)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "demo:", err)
	os.Exit(1)
}

// run runs the demo on a new node, and removes the node in any case.
func run(ctx context.Context, out io.Writer, programs string, keep bool) (err error) {
	n, err := node.New(programs, node.Options{
		Verify:   true,
		CoolDown: 30 * time.Second,
		Networks: networks(),
		Memifs:   memifs,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	d := &demo{node: n, out: out}
	err = d.runSteps(ctx, keep)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; everything is removed")
	}
	d.showFailure(ctx)
	return err
}
