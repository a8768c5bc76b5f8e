package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func upTo(n int) latencies {
	var l latencies
	for i := n; i > 0; i-- {
		l = append(l, time.Duration(i)*time.Millisecond)
	}
	return l
}

func TestQuantileIsTheNearestRank(t *testing.T) {
	tests := []struct {
		name string
		of   latencies
		q    float64
		want time.Duration
	}{
		{"half of a hundred", upTo(100), 0.5, 50 * time.Millisecond},
		{"99 of a hundred", upTo(100), 0.99, 99 * time.Millisecond},
		{"99 of ten is the slowest", upTo(10), 0.99, 10 * time.Millisecond},
		{"half of three", upTo(3), 0.5, 2 * time.Millisecond},
		{"of one", upTo(1), 0.5, time.Millisecond},
		{"of none", nil, 0.5, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.of.quantile(tt.q); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestReportShowsRatios(t *testing.T) {
	one := &contender{name: "one", add: upTo(1), del: upTo(1)}
	four := &contender{name: "four", add: latencies{4 * time.Millisecond}, del: latencies{2 * time.Millisecond}}
	for _, tt := range []struct {
		name       string
		contenders []*contender
		last       string
	}{
		{"one alone", []*contender{one}, "one 1.0 ms 1.0 ms 1.0 ms 1.0 ms"},
		{"ours and another", []*contender{one, four}, "one / four 0.25 0.25 0.50 0.50"},
		{"ours twice and another", []*contender{one, one, four}, "four / one 4.00 4.00 2.00 2.00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := (&bench{out: &out}).report("1 pod", tt.contenders); err != nil {
				t.Fatal(err)
			}
			if last := lastLine(out.String()); last != tt.last {
				t.Errorf("last line %q, want %q", last, tt.last)
			}
		})
	}
}

// lastLine returns the last non-empty line, with single spaces.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(strings.Fields(lines[len(lines)-1]), " ")
}

func TestTrafficIsComparedWithTheBridge(t *testing.T) {
	var out bytes.Buffer
	bridge := &rates{
		way:      way{name: bridgeWay},
		gigabits: []float64{1, 10, 30},
		packets:  []float64{1e6},
		offered:  []float64{1e6},
	}
	ours := &rates{
		way:      way{name: "weft-vswitch, tap-tap, L2"},
		gigabits: []float64{8, 9, 2},
		packets:  []float64{9e5},
		offered:  []float64{2e6},
	}
	if err := (throughput{out: &out, rounds: 3, duration: time.Second}).report([]*rates{bridge, ours}); err != nil {
		t.Fatal(err)
	}
	if last := lastLine(out.String()); last != "weft-vswitch, tap-tap, L2 8.00 0.80 0.75 2000 900 0.90 1.00" {
		t.Errorf("last line %q", last)
	}
}

func TestSlopeIgnoresSingleSlowCalls(t *testing.T) {
	var l latencies
	for i := range 20 {
		l = append(l, 10*time.Millisecond+time.Duration(i)*time.Millisecond/2)
	}
	l[7] = time.Second
	if got := l.slope(); got < 0.49 || got > 0.51 {
		t.Errorf("%f ms a call, want 0.5", got)
	}
}
