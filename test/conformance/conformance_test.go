// Package conformance compares weft-vswitch with VPP: their answers over the binary API and their packets.
//
// A case is a sequence of API messages and packets. Its transcript holds every message with every answer, event and
// captured packet. The transcripts of a VPP version are stored in testdata/vpp-VERSION.txt; a run on that VPP
// (WEFT_VPP=PREFIX) must repeat them, and with -record replaces them. A run on weft-vswitch must equal the transcripts
// of each stored version, except for the lines in testdata/divergences.txt, each with its reason. A divergence that is
// listed but does not exist fails the test as well.
package conformance

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/programs"
)

var recording = flag.Bool("record", false, "store the answers of the VPP of "+dataplane.PrefixVariable)

func TestMain(m *testing.M) {
	flag.Parse()
	netnstest.Main(m, programs.Keep())
}

// testCase is a sequence of messages and packets.
type testCase struct {
	name string
	run  func(l *lab)
	// needs returns what the machine lacks for the case on VPP; "" = nothing.
	needs func() string
	// kills maps VPP releases that the case crashes to the source of that fact; they are skipped.
	kills map[string]string
}

func allCases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{
		protocolCases, interfaceCases, routeCases, bridgeCases, memifCases, linkCases, policyCases, puntCases,
		captureCases, statsCases, packetCases, policerCases, vlanCases,
	} {
		all = append(all, group...)
	}
	return all
}

// unable returns why the case cannot run on the dataplane; "" if it can.
func (c testCase) unable(d *dataplane.Dataplane) string {
	if !d.IsVPP() {
		return ""
	}
	if source, ok := c.kills[releaseOf(d.Version())]; ok {
		return "kills this VPP: " + source
	}
	if c.needs != nil {
		return c.needs()
	}
	return ""
}

// vhostNet returns the requirement of VPP's taps if the machine lacks it.
func vhostNet() string {
	if _, err := os.Stat("/dev/vhost-net"); err != nil {
		return "needs /dev/vhost-net"
	}
	return ""
}

func TestConformance(t *testing.T) {
	netnstest.Require(t)
	s := &suite{records: readRecords(t), divergences: readDivergences(t), answered: map[string]string{}}
	for _, c := range allCases() {
		t.Run(c.name, func(t *testing.T) { s.run(t, c) })
	}
	s.finish(t)
}

// tapCase runs on VPP only if the kernel has vhost-net.
const tapCase = "tap: taps are created, dumped and deleted"

// unrecorded maps a part of the names of messages to the case that sends them, which some record does not have.
var unrecorded = map[string]string{
	"tap": tapCase, "subif": vlanCase, "vlan_tag_rewrite": vlanCase, "policer_": policerCase,
	"feature_is_enabled": policerCase,
}

// isUnrecorded reports whether the record does not have the case that sends a message.
func (r record) isUnrecorded(message string) bool {
	for part, name := range unrecorded {
		if strings.Contains(message, part) && strings.HasPrefix(r.cases[name], notRecorded) {
			return true
		}
	}
	return false
}

func TestEveryMessageOfTheAgentIsInARecord(t *testing.T) {
	for _, r := range readRecords(t) {
		asked := map[string]bool{"show_version": true, "control_ping": true} // sent at each start and after each dump
		for _, transcript := range r.cases {
			for line := range strings.Lines(transcript) {
				if request, ok := strings.CutPrefix(line, "> "); ok {
					asked[strings.Fields(request)[0]] = true
				}
			}
		}
		for _, m := range vpp.Needed {
			name := m.GetMessageName()
			isRequest := !strings.HasSuffix(name, "_reply") && !strings.HasSuffix(name, "_details") &&
				!strings.HasSuffix(name, "_event")
			if isRequest && !asked[name] && !r.isUnrecorded(name) {
				t.Errorf("no case of VPP %s sends %s", r.version, name)
			}
		}
	}
}

// suite collects the transcripts of a run.
type suite struct {
	records     []record
	divergences map[string][]*divergence
	version     string
	answered    map[string]string // by case
}

func (s *suite) run(t *testing.T, c testCase) {
	l := newLab(t)
	s.version = l.dataplane.Version()
	if reason := c.unable(l.dataplane); reason != "" {
		s.answered[c.name] = notRecorded + reason + "\n"
		t.Skip(reason)
	}
	c.run(l)
	if testing.Verbose() {
		t.Log("\n" + l.transcript())
	}
	s.answered[c.name] = l.transcript()
	switch {
	case *recording:
	case l.dataplane.IsVPP():
		s.compareWithOwnRecord(t, c.name)
	default:
		s.compareWithRecords(t, c.name)
	}
}

// compareWithOwnRecord compares a VPP with the record of its release.
func (s *suite) compareWithOwnRecord(t *testing.T, name string) {
	t.Helper()
	for _, r := range s.records {
		if recordFile(r.version) == recordFile(s.version) {
			if d := difference(r.cases[name], s.answered[name]); d != "" {
				t.Errorf("VPP %s does not answer (+) as recorded (-); -record stores the new answers:\n%s", s.version,
					d)
			}
			return
		}
	}
	t.Errorf("there is no record of VPP %s; -record makes one", s.version)
}

// compareWithRecords compares weft-vswitch with the record of each VPP.
func (s *suite) compareWithRecords(t *testing.T, name string) {
	t.Helper()
	for _, r := range s.records {
		recorded, ok := r.cases[name]
		if !ok {
			t.Errorf("the record of VPP %s lacks the case; record it with WEFT_VPP=PREFIX and -record", r.version)
			continue
		}
		if strings.HasPrefix(recorded, notRecorded) {
			continue
		}
		want := ""
		for _, d := range s.divergences[name] {
			if d.holdsFor(r.version) {
				want = d.lines
				d.met = true
			}
		}
		if got := difference(recorded, s.answered[name]); got != want {
			t.Errorf("weft-vswitch (+) differs from VPP %s (-):\n%slisted in %s:\n%s", r.version, got, divergencesFile,
				want)
		}
	}
}

// finish stores a record, or reports sections of the files without a case.
func (s *suite) finish(t *testing.T) {
	t.Helper()
	if *recording {
		s.store(t)
		return
	}
	if len(s.answered) < len(allCases()) {
		return // -run selected some cases
	}
	for _, r := range s.records {
		for name := range r.cases {
			if _, ok := s.answered[name]; !ok {
				t.Errorf("%s has the unknown case %q", recordFile(r.version), name)
			}
		}
	}
	for name, list := range s.divergences {
		for _, d := range list {
			if dataplane.Prefix() == "" && !d.met {
				t.Errorf("%s has %q, but no case was compared with it", divergencesFile, name)
			}
		}
	}
}

// store writes the record of a VPP. It keeps the recorded transcripts of cases that did not run.
func (s *suite) store(t *testing.T) {
	t.Helper()
	if dataplane.Prefix() == "" {
		t.Fatalf("-record needs %s", dataplane.PrefixVariable)
	}
	out := record{version: s.version, cases: map[string]string{}}
	exists := map[string]bool{}
	for _, c := range allCases() {
		exists[c.name] = true
	}
	for _, r := range s.records {
		if recordFile(r.version) != recordFile(s.version) {
			continue
		}
		for name, text := range r.cases {
			if exists[name] {
				out.cases[name] = text
			}
		}
	}
	for name, text := range s.answered {
		if _, known := out.cases[name]; !known || !strings.HasPrefix(text, notRecorded) {
			out.cases[name] = text
		}
	}
	if err := out.write(); err != nil {
		t.Fatal(err)
	}
}
