package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"
	"go.fd.io/govpp/binapi/acl"
)

// countersLag is the time within which the counters of all packets are in the stats segment: weft-vswitch stores them
// once a second, later on a busy machine.
const countersLag = 10 * time.Second

// matches records the counters of ACLs in the stats segment, when they count as many packets as were sent. Otherwise
// the transcript shows what they count after countersLag.
func (l *lab) matches(packets uint64) {
	l.Helper()
	client := statsclient.NewStatsClient(l.dataplane.StatsSocket())
	if err := client.Connect(); err != nil {
		l.Fatal(err)
	}
	defer func() { _ = client.Disconnect() }()
	for deadline := time.Now().Add(countersLag); ; <-time.After(20 * time.Millisecond) {
		entries, err := client.DumpStats("^/acl/")
		switch {
		case err != nil && isChanging(err) && time.Now().Before(deadline):
			continue
		case err != nil:
			l.Fatal(err)
		}
		lines, counted := matchLines(entries)
		if counted != packets && time.Now().Before(deadline) {
			continue
		}
		for _, line := range lines {
			l.note("%s", line)
		}
		if len(lines) == 0 {
			l.note("no counters")
		}
		return
	}
}

// isChanging reports whether the client gave up because the dataplane changed the directory of the counters meanwhile.
func isChanging(err error) bool {
	return errors.Is(err, adapter.ErrStatsDataBusy) || errors.Is(err, adapter.ErrStatsAccessFailed)
}

// matchLines prints counters of ACLs, each as packets/bytes of all threads, and sums the packets.
func matchLines(entries []adapter.StatEntry) (lines []string, packets uint64) {
	for _, e := range entries {
		var sums []adapter.CombinedCounter
		for _, thread := range e.Data.(adapter.CombinedCounterStat) {
			sums = append(sums, make([]adapter.CombinedCounter, max(0, len(thread)-len(sums)))...)
			for rule, n := range thread {
				sums[rule] = adapter.CombinedCounter{sums[rule].Packets() + n.Packets(), sums[rule].Bytes() + n.Bytes()}
			}
		}
		text := new(strings.Builder)
		for _, n := range sums {
			fmt.Fprintf(text, " %d/%d", n.Packets(), n.Bytes())
			packets += n.Packets()
		}
		lines = append(lines, string(e.Name)+text.String())
	}
	return lines, packets
}

// counting is asked without must: VPP answers with a wrong message id.
func counting(on bool) *acl.ACLStatsIntfCountersEnable {
	return &acl.ACLStatsIntfCountersEnable{Enable: on}
}

// statsCases are the counters of rules, which weftctl policy shows.
var statsCases = []testCase{
	{name: "stats: matches of rules", run: func(l *lab) {
		r := l.routed()
		l.must(aclMessage(anyID, "in", reflecting("10.0.1.0/24", 17), aclRule(false, "10.0.1.0/24", 1),
			aclRule(false, "fd00:1::/64", 0)))
		l.must(aclMessage(anyID, "out", aclRule(false, "0.0.0.0/0", 0), aclRule(false, "::/0", 0)))
		l.must(setACLs(r.indexA, 1, 0, 1))
		ping := func() { r.sends(echo4("10.0.1.2", "10.0.2.2", 64, 10)) }
		ping()
		l.matches(0)
		l.ask(counting(true))
		ping()
		ping()
		r.sends(udp4("10.0.1.2", "10.0.2.2", 30), udp4("10.0.1.2", "10.0.2.2", 30), udp6("fd00:1::2", "fd00:2::2", 30))
		r.answers(answer(udp4("10.0.2.2", "10.0.1.2", 40))) // of the session
		r.answers(udp4("10.0.2.2", "10.0.1.2", 40))
		l.matches(5)
		l.ask(counting(false))
		ping()
		l.matches(5)
	}},
	{name: "stats: counters of ACLs that are replaced and deleted", run: func(l *lab) {
		r := l.routed()
		l.ask(counting(true))
		l.ask(counting(true))
		deny := aclRule(false, "0.0.0.0/0", 0)
		l.must(aclMessage(anyID, "in", deny, deny, deny))
		l.must(setACLs(r.indexA, 1, 0))
		r.sends(udp4("10.0.1.2", "10.0.2.2", 30))
		l.matches(1)
		l.must(aclMessage(0, "new", aclRule(true, "10.0.1.0/24", 17), deny))
		l.matches(0)
		r.sends(udp4("10.0.1.2", "10.0.2.2", 30))
		l.matches(1)
		l.must(setACLs(r.indexA, 0))
		l.must(&acl.ACLDel{ACLIndex: 0})
		l.matches(0)
		l.must(aclMessage(anyID, "again", deny))
		l.matches(0)
	}},
}
