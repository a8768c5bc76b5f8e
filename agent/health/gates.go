package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

const (
	// GatesPoll is the time between two polls of the readiness gates.
	GatesPoll = 10 * time.Second
	// gateTimeout is the timeout of a request. The gates are polled concurrently.
	gateTimeout = 2 * time.Second
)

// ReadinessGates polls URLs. The condition Gates holds while all of them answer with a status of 200 to 299.
type ReadinessGates struct {
	urls   []string
	health *Conditions
	every  time.Duration
	client *http.Client
	log    *slog.Logger
	polled bool
}

// NewGates returns gates that Run polls in the given interval.
func NewGates(urls []string, c *Conditions, interval time.Duration) *ReadinessGates {
	return &ReadinessGates{urls: urls, health: c, every: interval, log: c.log, client: &http.Client{
		Timeout:   gateTimeout,
		Transport: &http.Transport{DisableKeepAlives: true}, // a new connection for each poll, without a proxy
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a redirect does not report readiness
		},
	}}
}

// Run polls until ctx ends.
func (g *ReadinessGates) Run(ctx context.Context) error {
	tick := time.NewTicker(g.every)
	defer tick.Stop()
	for {
		err := g.poll(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		g.report(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// report sets the condition, and logs a change.
func (g *ReadinessGates) report(err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	switch was := g.health.Holds(Gates); {
	case err == nil && !was:
		g.log.Info("readiness gates are open", "urls", len(g.urls))
	case err != nil && (was || !g.polled):
		g.log.Warn("pods are not served: a readiness gate is closed", "err", err)
	}
	g.polled = true
	g.health.Set(Gates, err == nil, reason)
}

// poll requests all URLs concurrently. It returns the errors of the closed gates in one line.
func (g *ReadinessGates) poll(ctx context.Context) error {
	results := make([]chan error, len(g.urls))
	for i, at := range g.urls {
		results[i] = make(chan error, 1)
		go func() { results[i] <- g.request(ctx, at) }()
	}
	var closed error
	for _, result := range results {
		switch err := <-result; {
		case closed == nil:
			closed = err
		case err != nil:
			closed = fmt.Errorf("%w, %w", closed, err)
		}
	}
	return closed
}

func (g *ReadinessGates) request(ctx context.Context, at string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	reply, err := g.client.Do(req)
	if err != nil {
		return err // it has the URL
	}
	if err := reply.Body.Close(); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if reply.StatusCode < 200 || reply.StatusCode > 299 {
		return fmt.Errorf("%s answers %s", at, reply.Status)
	}
	return nil
}

// ValidateGates returns an error for each URL that cannot be a readiness gate.
func ValidateGates(urls []string) error {
	var errs []error
	for _, at := range urls {
		u, err := url.Parse(at)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("readinessGates: %w", err))
		case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			errs = append(errs,
				fmt.Errorf(
					"readinessGates: %q is not a URL with http or https and a host, such as http://127.0.0.1:8080/ready",
					at))
		case u.User != nil: // logs and /readyz would show it
			errs = append(errs,
				fmt.Errorf("readinessGates: %s has a user: remove it, gates are requested without credentials",
					u.Redacted()))
		}
	}
	return errors.Join(errs...)
}
