package churn_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/test/must"
)

// growth is the factor by which memory may grow: garbage that is not collected yet is not a leak.
const growth = 1.2

// The agent keeps records of its last transactions. Its memory grows by each until it has that many.
const (
	remembered = 1000
	oneRecord  = 32 << 10
)

// collecting is how long processes may take to return garbage to the kernel: an idle one collects every two minutes.
const collecting = 4 * time.Minute

// memory is the private memory of processes, in bytes.
type memory map[string]uint64

func (c *churn) memory(t *testing.T) memory {
	t.Helper()
	m := memory{}
	for role, pid := range c.processes() {
		m[role] = resident(t, pid)
	}
	return m
}

// raise sets m to the maximum of m and other.
func (m memory) raise(other memory) {
	for role, bytes := range other {
		m[role] = max(m[role], bytes)
	}
}

// resident returns the anonymous memory of a process (RssAnon).
func resident(t *testing.T, pid int) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must.Succeed(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			must.Succeed(t, err)
			return n << 10
		}
	}
	t.Fatalf("process %d has no RssAnon", pid)
	return 0
}

// checkMemory waits until each process uses no more than before, plus some garbage and the records of the transactions
// since.
func (c *churn) checkMemory(t *testing.T, before memory, transactions int) {
	t.Helper()
	limits := map[string]float64{}
	for role, bytes := range before {
		limits[role] = float64(bytes) * growth
	}
	if warm := 2 * warmUp * together; warm < remembered {
		limits["weft-agent"] += oneRecord * float64(min(transactions, remembered-warm))
	}
	over := time.After(collecting)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		grown := ""
		now := c.memory(t)
		for role, bytes := range now {
			if float64(bytes) > limits[role] {
				grown += fmt.Sprintf(" %s from %d to %d KiB", role, before[role]>>10, bytes>>10)
			}
		}
		if grown == "" {
			t.Logf("memory before %v and after %v", before, now)
			return
		}
		select {
		case <-tick.C:
		case <-over:
			t.Errorf("memory grew:%s", grown)
			return
		}
	}
}

// String shows the memory in KiB.
func (m memory) String() string {
	return fmt.Sprintf("weft-agent %d KiB, dataplane %d KiB", m["weft-agent"]>>10, m["dataplane"]>>10)
}
