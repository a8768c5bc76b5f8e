package packets

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/test/peers"
)

func TestAimsAreMetOrMissed(t *testing.T) {
	var v verdicts
	v.add("cost", atMost(40), 40, "%.0f")
	v.add("cost", atMost(40), 40.5, "%.1f")
	v.add("share", atLeast(0.4), 0.39, "%.2f")
	v.add("pauses", beside(2), 1.9, "%.1f")
	v.add("pauses", beside(2), 3, "%.1f")
	var out bytes.Buffer
	if err := v.report(&out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if words := strings.Fields(line); len(words) > 0 {
			got = append(got, words[len(words)-1])
		}
	}
	if strings.Join(got, ",") != "is,met,missed,missed,met,missed" {
		t.Errorf("got %q of\n%s", got, out.String())
	}
}

func TestOnlyLongPausesCount(t *testing.T) {
	p := pauses{watched: 10 * time.Millisecond}
	for _, d := range []time.Duration{longPause - 1, longPause, 700 * time.Microsecond} {
		p.add(d)
	}
	if p.paused != time.Millisecond || p.longest != 700*time.Microsecond || p.share() != 10 {
		t.Errorf("got %+v, %f", p, p.share())
	}
}

func TestBusiestThreadIsFound(t *testing.T) {
	busy, err := busiest(os.Getpid(), func() {
		for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
			continue
		}
	})
	if err != nil || busy.tid == 0 {
		t.Fatal(busy, err)
	}
	if spent, err := busy.cpuTime(); err != nil || spent <= 0 {
		t.Errorf("%s, %v", spent, err)
	}
}

// The statistics after a stop must not count as an answer.
const fakeTestpmd = `#!/bin/sh
echo "Checking link statuses..."
n=0
while read -r command; do
	case "$command" in
	stop) printf '  ------- Forward statistics for port 0  -------\n  RX-packets: 77  RX-dropped: 0\n  TX-packets: 77  TX-dropped: 0\n';;
	"show port stats all") n=$((n+5)); for port in 0 1; do
		printf '  ######################## NIC statistics for port %s  ########################\n' $port
		printf '  RX-packets: %s  RX-missed: 0\n  RX-errors: 0\n  TX-packets: 3          TX-errors: 0\n' $n
	done;;
	quit) exit 0;;
	esac
done
`

func TestTrafficIsTheSumOfAllPorts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dpdk-testpmd")
	if err := os.WriteFile(path, []byte(fakeTestpmd), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := startTestpmd(t.Context(), peers.Program{Path: path}, role{
		name:  "fake",
		ports: []string{"id=0", "id=1"},
		dir:   t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	if err := p.do("stop"); err != nil {
		t.Fatal(err)
	}
	if got, err := p.traffic(); got != (traffic{received: 10, sent: 6}) || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := p.flows(t.Context()); err != nil {
		t.Error(err)
	}
}
