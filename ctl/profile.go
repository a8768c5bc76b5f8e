package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// debugSocket is the name of the socket for profiles, in the directory of the agent's socket.
const debugSocket = "debug.sock"

// Limits of a profile.
const (
	maxProfile     = 64 << 20 // bytes
	maxProfileTime = 2 * time.Minute
)

// profiles are the kinds of profiles, with the agent's paths.
var profiles = map[string]string{
	"cpu":       "/debug/pprof/profile",
	"heap":      "/debug/pprof/heap",
	"goroutine": "/debug/pprof/goroutine",
}

// writtenProfile is the result of profile.
type writtenProfile struct {
	Bytes int    `json:"bytes"`
	File  string `json:"file"`
}

func profileCommand(c *client) *cobra.Command {
	var file string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:       "profile cpu|heap|goroutine -w FILE",
		Short:     "Writes a profile of the agent to a file, for go tool pprof",
		Example:   "  weftctl profile cpu --duration 30s -w cpu.pprof && go tool pprof -top cpu.pprof",
		Args:      usage(cobra.ExactArgs(1)),
		ValidArgs: []string{"cpu", "heap", "goroutine"},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, known := profiles[args[0]]
			switch {
			case !known:
				return usageError{fmt.Errorf("profile %q: use cpu, heap or goroutine", args[0])}
			case file == "":
				return usageError{errors.New("profile: -w FILE is required")}
			case duration < time.Second || duration > maxProfileTime || duration%time.Second != 0:
				return usageError{
					fmt.Errorf("--duration %s: must be whole seconds, 1s to %s", duration, maxProfileTime),
				}
			}
			if args[0] == "cpu" {
				path += "?" + url.Values{"seconds": {strconv.Itoa(int(duration.Seconds()))}}.Encode()
			} else {
				duration = 0
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), c.agent.timeout+duration)
			defer cancel()
			body, err := c.agent.profile(ctx, path)
			if err != nil {
				return fmt.Errorf("profile %s: %w", args[0], err)
			}
			if file == standardOutput {
				_, err = c.out.Write(body)
				return err
			}
			if err := writeFile(file, body); err != nil {
				return fmt.Errorf("profile %s: %w", args[0], err)
			}
			return c.show(writtenProfile{Bytes: len(body), File: file}, func() {
				c.printf("%d bytes written to %s\n", len(body), file)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "write", "w", "", "file to write, which must not exist; - is the standard output")
	cmd.Flags().DurationVar(&duration, "duration", 10*time.Second, "time of a CPU profile, 1s to 2m")
	return cmd
}

// profile reads a profile.
func (a agent) profile(ctx context.Context, path string) ([]byte, error) {
	socket := filepath.Join(filepath.Dir(a.socket), debugSocket)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://weft-agent"+path, nil)
	if err != nil {
		return nil, err
	}
	reply, err := (&http.Client{Transport: transport}).Do(q)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("the agent's socket %s: %w: is weft-agent running?", socket, err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, maxProfile))
	if err != nil {
		return nil, err
	}
	if reply.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	if len(body) == maxProfile {
		return nil, fmt.Errorf("larger than %d MiB", maxProfile>>20)
	}
	return body, nil
}
