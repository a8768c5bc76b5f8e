package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/node"
)

// endpointAddress is in a namespace of the test.
const endpointAddress = "127.0.0.1:9465"

// get makes one request to the endpoint.
func get(ctx context.Context, path string) (code int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpointAddress+path, nil)
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	return reply.StatusCode, string(text), err
}

// scrape returns the values of all metrics, by name with labels.
func scrape(ctx context.Context) (map[string]float64, error) {
	code, body, err := get(ctx, "/metrics")
	if err != nil || code != http.StatusOK {
		return nil, fmt.Errorf("scrape: %d, %w: %s", code, err, body)
	}
	values := make(map[string]float64)
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndex(line, " ")
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil {
			return nil, fmt.Errorf("scrape: %q: %w", line, err)
		}
		values[line[:at]] = value
	}
	return values, nil
}

// until repeats ok until it returns no error.
func until(t *testing.T, what string, ok func() error) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		err := ok()
		if err == nil {
			tick.Stop()
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// metric waits until a metric has an accepted value.
func (l *lab) metric(name string, pleases func(float64) bool) {
	l.Helper()
	until(l.T, name, func() error {
		values, err := scrape(l.Context())
		if err != nil {
			return err
		}
		value, there := values[name]
		if !there {
			beginning, _, _ := strings.Cut(name, "{")
			isLike := func(other string) bool { return !strings.HasPrefix(other, beginning) }
			return fmt.Errorf("missing; similar metrics: %v",
				slices.DeleteFunc(slices.Sorted(maps.Keys(values)), isLike))
		}
		if !pleases(value) {
			return fmt.Errorf("the value is %v", value)
		}
		return nil
	})
}

// is accepts one value.
func is(want float64) func(float64) bool { return func(have float64) bool { return have == want } }

// atLeast accepts a value and all above.
func atLeast(want float64) func(float64) bool { return func(have float64) bool { return have >= want } }

// now returns the value of a metric; 0 if it is missing.
func (l *lab) now(name string) float64 {
	l.Helper()
	values, err := scrape(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	return values[name]
}

// call executes the plugin as cni does, but may fail.
func (l *lab) call(ctx context.Context, verb string, p *node.Pod, netns string) error {
	cmd := exec.CommandContext(ctx, l.Program("weft-cni"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+p.ContainerID, "CNI_NETNS="+netns,
		"CNI_IFNAME=eth0", "CNI_PATH=/", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME="+p.Name)
	cmd.Stdin = strings.NewReader(string(l.netconf(nil)))
	out, err := cmd.CombinedOutput()
	return errors.Join(err, errorOf(out))
}

// errorOf returns the plugin's output unless it is a result.
func errorOf(out []byte) error {
	if strings.Contains(string(out), `"code":`) {
		return errors.New(string(out))
	}
	return nil
}

// freeze stops the dataplane's process with SIGSTOP until the returned function is called.
func (l *lab) freeze() (thaw func()) {
	l.Helper()
	pid := l.DataplanePID()
	if pid == 0 {
		l.Fatal("no dataplane is running")
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		l.Fatal(err)
	}
	thaw = func() { _ = unix.Kill(pid, unix.SIGCONT) }
	l.Cleanup(thaw)
	return thaw
}
