package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/internal/httplimit"
	"github.com/weftnet/weft/internal/loopback"
)

// maxConnections is the number of open connections of the page. A browser has a few.
const maxConnections = 128

func uiCommand(c *client) *cobra.Command {
	var socket string
	var port uint16
	var noOpen bool
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serves the agent's page on loopback until interrupted, and opens it in a browser",
		Example: "  weftctl ui\n" +
			"  weftctl ui --no-open --port 9466   for ssh -L 9466:127.0.0.1:9466 NODE",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if socket == "" {
				socket = filepath.Join(filepath.Dir(c.agent.socket), "ui.sock")
			}
			p := proxy{socket: socket, port: port, timeout: c.agent.timeout}
			return p.run(cmd.Context(), func(address string) {
				c.printf("%s\nThe link is valid once. Ctrl-C ends it.\n", address)
				if !noOpen {
					openBrowser(cmd.Context(), address)
				}
			})
		},
	}
	cmd.Flags().StringVar(&socket, "ui-socket", "", "socket of the page; default: ui.sock in the directory of --socket")
	cmd.Flags().Uint16Var(&port, "port", 0, "TCP port on 127.0.0.1; 0: a free one")
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "only print the URL")
	return cmd
}

// openBrowser starts the desktop's browser, if there is one.
func openBrowser(ctx context.Context, address string) {
	if program, err := exec.LookPath("xdg-open"); err == nil {
		cmd := exec.CommandContext(ctx, program, address)
		if cmd.Start() == nil {
			go func() { _ = cmd.Wait() }()
		}
	}
}

// proxy serves the page of a unix socket on loopback TCP.
type proxy struct {
	socket  string
	port    uint16
	timeout time.Duration // of the first request
}

// run serves until ctx ends. It calls ready with the URL, which contains a token that is valid once.
func (p proxy) run(ctx context.Context, ready func(address string)) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", p.socket)
	}}
	defer transport.CloseIdleConnections()
	if err := p.probe(ctx, transport); err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.port))))
	if err != nil {
		return fmt.Errorf("listen on loopback: %w; choose another --port", err)
	}
	token := loopback.NewToken()
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	ready("http://" + address + "/#" + token)
	return p.serve(ctx, listener, p.handler(loopback.New(token, port, true), transport))
}

// probe checks that an agent serves the page.
func (p proxy) probe(ctx context.Context, transport *http.Transport) error {
	if p.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.timeout)
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/api/state", nil)
	if err != nil {
		return err
	}
	reply, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf(
			"no agent serves its page at %s: %w; is weft-agent running, and ui.socket not none? (needs root)", p.socket,
			err)
	}
	defer reply.Body.Close()
	_, _ = io.Copy(io.Discard, reply.Body)
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("the page at %s replies %s", p.socket, reply.Status)
	}
	return nil
}

func (p proxy) handler(guard *loopback.Guard, transport *http.Transport) http.Handler {
	target := &url.URL{Scheme: "http", Host: "localhost"}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // server-sent events
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, `{"error":"the agent does not answer; it may be restarting"}`, http.StatusBadGateway)
		},
	}
	return guard.Protect(forward)
}

func (p proxy) serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ConnState:   httplimit.Connections(maxConnections),
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- server.Close() })
	defer stop()
	err := server.Serve(listener)
	if ctx.Err() == nil {
		return err
	}
	if err := <-stopped; err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
