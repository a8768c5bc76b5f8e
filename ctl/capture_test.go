package ctl_test

import (
	"strings"
	"testing"

	"github.com/weftnet/weft/ctl/ctltest"
)

func TestCaptureWithoutAFilePrintsALineForEachPacket(t *testing.T) {
	const echo = "12:00:00.000000  ICMP 10.1.0.2 > 10.1.0.9, EchoRequest, 42 bytes\n"
	const arp = "12:00:00.001000  ARP who has 10.1.0.9, tell 10.1.0.2, 42 bytes\n"
	for flags, want := range map[string]string{
		"":          echo + arp + "2 packets captured, 0 lost: time\n",
		"--count 1": echo + "1 packet captured, 0 lost: count\n",
		"-o json --count 1": `{"length":42,"packet":"ICMP 10.1.0.2 \u003e 10.1.0.9, EchoRequest","time":"2026-03-01T12:00:00Z"}` +
			"\n1 packet captured, 0 lost: count\n",
	} {
		got, code, _ := answer(t, ctltest.Sample(now), strings.Fields("capture default/a eth0 "+flags)...)
		if got != want || code != 0 {
			t.Errorf("%s: exit code %d\n%s\nwant\n%s", flags, code, got, want)
		}
	}
}

// The lines of a node are not bytes: they need no file.
func TestCaptureOfANodeWithoutAFileIsPassedThrough(t *testing.T) {
	a := newAgents(t, answersWith("a line\n", 0), "n1")
	a.mustPrint(true, "a line\n", "capture", "default/a", "eth0", "--node", "n1", "--count", "1")
	for _, command := range []string{"bundle", "profile heap"} {
		_, messages, code := a.run(true, append(strings.Fields(command), "--node", "n1")...)
		if code != 2 || !strings.Contains(messages, "on another node needs --write FILE") {
			t.Errorf("%s: exit code %d, messages %s", command, code, messages)
		}
	}
}
