package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Times of the looks at readiness gates. A look at all of them waits at most for the slowest.
const (
	gatesLook   = 10 * time.Second
	gatesAnswer = 2 * time.Second
)

// gates are URLs of others on which the agent's readiness hangs.
type gates struct {
	urls   []string
	health *health
	every  time.Duration
	client *http.Client
	asked  bool
}

func newGates(urls []string, h *health, every time.Duration) *gates {
	return &gates{urls: urls, health: h, every: every, client: &http.Client{
		Timeout:   gatesAnswer,
		Transport: &http.Transport{DisableKeepAlives: true}, // each look is a connection of its own, past proxies
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // who sends us elsewhere does not say that it is ready
		},
	}}
}

// run looks until ctx ends. Gates count for as long as the agent runs: pods are not wired while what they need is away.
func (g *gates) run(ctx context.Context) error {
	tick := time.NewTicker(g.every)
	defer tick.Stop()
	for {
		err := g.look(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		g.tell(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// tell says what a look found, and logs what is new.
func (g *gates) tell(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	switch was := g.health.holds(conditionGates); {
	case err == nil && !was:
		g.health.log.Info("readiness gates are open", "urls", len(g.urls))
	case err != nil && (was || !g.asked):
		g.health.log.Warn("pods are not served: a readiness gate is closed", "err", err)
	}
	g.asked = true
	g.health.set(conditionGates, err == nil, why)
}

// look asks all at once, and names each that is closed.
func (g *gates) look(ctx context.Context) error {
	answers := make([]chan error, len(g.urls))
	for i, at := range g.urls {
		answers[i] = make(chan error, 1)
		go func() { answers[i] <- g.ask(ctx, at) }()
	}
	var closed []error
	for _, answer := range answers {
		closed = append(closed, <-answer)
	}
	return inOneLine(closed)
}

func (g *gates) ask(ctx context.Context, at string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	answer, err := g.client.Do(request)
	if err != nil {
		return err // it names the URL
	}
	if err := answer.Body.Close(); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("%s answers %s", at, answer.Status)
	}
	return nil
}

// inOneLine joins errors as a condition's message has them.
func inOneLine(errs []error) (joined error) {
	for _, err := range errs {
		switch {
		case joined == nil:
			joined = err
		case err != nil:
			joined = fmt.Errorf("%w, %w", joined, err)
		}
	}
	return joined
}

func validateGates(urls []string) error {
	var errs []error
	for _, at := range urls {
		u, err := url.Parse(at)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("readinessGates: %w", err))
		case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			errs = append(errs, fmt.Errorf("readinessGates: %q is not a URL with http or https and a host, such as http://127.0.0.1:8080/ready", at))
		case u.User != nil: // it would stand in logs and in the answers of /readyz
			errs = append(errs, fmt.Errorf("readinessGates: %s has a user: gates are asked without", u.Redacted()))
		}
	}
	return errors.Join(errs...)
}
