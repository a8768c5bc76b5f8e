// Package exec runs programs in containers of pods, through the API server.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/weftnet/weft/k8s/client"
)

// Container names a container of a pod.
type Container struct {
	Namespace, Pod, Name string
}

// String returns POD/CONTAINER.
func (c Container) String() string { return c.Pod + "/" + c.Name }

// Program is a command line in a container.
type Program struct {
	Container Container
	Command   []string
}

// Streams are the standard streams of a program. A nil stream is not opened.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// ExitError is the error of a program that ran and ended with an exit code other than 0.
type ExitError struct{ Code int }

// Error returns the exit code in words.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// OutputError means that the output of a program could not be written.
type OutputError struct{ Err error }

// Error returns the error of the writer.
func (e OutputError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the writer.
func (e OutputError) Unwrap() error { return e.Err }

// Run runs a program in a container until it ends. It uses the subresource pods/exec of the API server, by WebSocket,
// and by SPDY if the API server or a proxy does not support that. When ctx ends, Run returns at once; the program sees
// the end of its standard input, and runs on if it does not react to that.
func Run(ctx context.Context, c *client.Client, p Program, s Streams) error {
	in := p.Container
	to := c.ExecURL(in.Namespace, in.Pod, &corev1.PodExecOptions{
		Container: in.Name, Command: p.Command, Stdin: s.In != nil, Stdout: s.Out != nil, Stderr: s.Err != nil,
	})
	executor, err := executorOf(c, to)
	if err != nil {
		return fmt.Errorf("exec in %s: %w", in, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := gateTo(s.Out, cancel)
	failures := gateTo(s.Err, cancel)
	defer out.close()
	defer failures.close()
	quiet := klog.NewContext(ctx, logr.Discard()) // the library logs the end of each connection as an error
	ended := make(chan error, 1)
	go func() {
		ended <- executor.StreamWithContext(quiet, remotecommand.StreamOptions{
			Stdin:  s.In,
			Stdout: out.writer(),
			Stderr: failures.writer(),
		})
	}()
	err = await(ctx, ended)
	if lost, is := errors.AsType[OutputError](context.Cause(ctx)); is {
		return lost
	}
	return explain(ctx, in, err)
}

// grace is the time that a run has to end after its context.
const grace = time.Second

// await returns the error of a run, or the error of ctx if the run does not end with it: the library does not watch the
// context while it waits for the API server's answer to the upgrade. Then the run ends with its connection, and its
// output is discarded.
func await(ctx context.Context, ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(grace):
		return ctx.Err()
	}
}

// executorOf returns an executor that uses WebSocket with SPDY as its fallback, like kubectl.
func executorOf(c *client.Client, to *url.URL) (remotecommand.Executor, error) {
	connection := c.Connection()
	ws, err := remotecommand.NewWebSocketExecutor(connection, "GET", to.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(connection, "POST", to)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(ws, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// explain converts the error of an executor into one line.
func explain(ctx context.Context, in Container, err error) error {
	if err == nil {
		return nil
	}
	if code, ok := errors.AsType[utilexec.CodeExitError](err); ok {
		return ExitError{code.Code}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("exec in %s: %w", in, ctx.Err())
	}
	if unsent, ok := errors.AsType[*url.Error](err); ok {
		err = unsent.Err // without the long URL
	}
	if apierrors.IsForbidden(err) || strings.Contains(err.Error(), "forbidden") {
		return fmt.Errorf("exec in %s: %w (docs/fleet.md lists the permissions)", in, client.OneLine(err))
	}
	return fmt.Errorf("exec in %s: %w", in, client.OneLine(err))
}
