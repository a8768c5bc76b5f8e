package connectivity_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/probe"
	"github.com/weftnet/weft/k8s/k8stest"
)

func TestEachProbeIsAResult(t *testing.T) {
	c := newCluster(t)
	if err := c.run(); err != nil || c.passed() != 4 || c.reason() != "" {
		t.Errorf("error %v, %d probes passed, failure %q: want ping, TCP, UDP and MTU", err, c.passed(), c.reason())
	}
}

func TestAPathWithLessMTUIsNamedWithItsNodesAndTheLengthThatFits(t *testing.T) {
	c := newCluster(t)
	c.send = func(x k8stest.Exec, probes []probe.Probe) int {
		for _, p := range probes {
			o := probe.Outcome{ID: p.ID}
			if p.Kind == probe.Full {
				o.Size = 1450
				o.Fits = 1312
				o.Error = "no reply within 1s"
			}
			printOutcome(x, o)
		}
		return 0
	}
	want := "packets of 1450 bytes are lost, and of 1312 bytes arrive, on node n1"
	if err := c.run(); err != nil || c.reason() != want {
		t.Errorf("error %v, failure %q, want %q", err, c.reason(), want)
	}
}

// A pod that reports one outcome several times must not hide a probe without any.
func TestRepeatedOutcomeDoesNotReplaceAMissingOne(t *testing.T) {
	c := newCluster(t)
	c.send = func(x k8stest.Exec, probes []probe.Probe) int {
		for range probes {
			printOutcome(x, probe.Outcome{ID: 1})
		}
		return 0
	}
	if err := c.run(); err == nil || err.Error() != "the client pod reported 1 of 4 probes" || c.passed() != 1 {
		t.Errorf("error %v, %d probes passed", err, c.passed())
	}
}

func TestLinesThatAreNoOutcomesAreSkipped(t *testing.T) {
	c := newCluster(t)
	c.send = func(x k8stest.Exec, probes []probe.Probe) int {
		_, _ = io.WriteString(x.Out, "panic: no\n\n[]\n{\"id\": -1}\n{\"id\": 99}\n{\"id\": \"1\"}\n\x00\xff\n")
		// longer than any outcome
		_, _ = io.WriteString(x.Out, "{\"id\": 0, \"error\": \""+strings.Repeat("x", 1<<20)+"\"}\n")
		for _, p := range probes {
			_, _ = fmt.Fprintf(x.Out, "{\"id\": %d", p.ID) // in two parts
			_, _ = io.WriteString(x.Out, ", \"took\": 7}\n")
		}
		_, _ = io.WriteString(x.Out, "{\"id\": 0") // cut
		return 0
	}
	if err := c.run(); err != nil || c.passed() != 4 || c.reason() != "" {
		t.Errorf("error %v, %d probes passed, failure %q", err, c.passed(), c.reason())
	}
}

func TestPartialOutputKeepsItsOutcomesAndFails(t *testing.T) {
	c := newCluster(t)
	c.send = func(x k8stest.Exec, probes []probe.Probe) int {
		printOutcome(x, probe.Outcome{ID: probes[0].ID, Took: time.Millisecond})
		_, _ = io.WriteString(x.Out, `{"id": 1, "took"`)
		_, _ = io.WriteString(x.Err, "weftctl: no route to host"+strings.Repeat("!", 1<<20))
		return 1
	}
	err := c.run()
	if err == nil ||
		!strings.HasPrefix(err.Error(), "weftctl probe in pod client: exit code 1: weftctl: no route to host!") ||
		len(err.Error()) > 5000 || c.passed() != 1 {
		t.Errorf("error %.200v of a program with an endless complaint, %d probes passed", err, c.passed())
	}
}

func TestHangingPodEndsWithTheContext(t *testing.T) {
	c := newCluster(t)
	c.send = func(x k8stest.Exec, _ []probe.Probe) int {
		printOutcome(x, probe.Outcome{ID: 0})
		_, _ = io.Copy(io.Discard, x.In) // ends with the connection
		return 0
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	err := c.runUntil(ctx, func() {
		if c.passed() == 1 {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) || c.passed() != 1 {
		t.Errorf("error %v, %d probes passed", err, c.passed())
	}
}

func TestInvalidInterfacesAreAFailedPod(t *testing.T) {
	for want, output := range map[string]string{
		"interfaces of pod client: invalid character":                          "no JSON",
		"interfaces of pod client: unexpected end of JSON":                     `[{"name": "eth0"`,
		`interfaces of pod client: invalid interface name "a\x1b[31mb"`:        `[{"name": "a\u001b[31mb", "addresses": []}]`,
		`interfaces of pod client: invalid interface name ""`:                  `[{"name": ""}]`,
		"interface eth0 has the address \"127.0.0.1\", which is not probed":    `[{"name": "eth0", "addresses": ["127.0.0.1"]}]`,
		"interface eth0 has the address \"fe80::1%eth0\", which is not probed": `[{"name": "eth0", "addresses": ["fe80::1%eth0"]}]`,
		"interface eth0 has 9 addresses":                                       `[{"name": "eth0", "addresses": ["10.0.0.1"` + strings.Repeat(`, "10.0.0.1"`, 8) + `]}]`,
		"interfaces of pod client: more than 64 KiB":                           "[" + strings.Repeat(" ", 64<<10) + "]",
	} {
		c := newCluster(t)
		c.interfaces = func(x k8stest.Exec) int {
			_, _ = io.WriteString(x.Out, output)
			return 0
		}
		if err := c.run(); err != nil || !strings.Contains(c.reason(), want) || c.passed() != 0 {
			t.Errorf("%.60q: error %v, %d probes passed, reason %q, want %q", output, err, c.passed(), c.reason(), want)
		}
	}
}
