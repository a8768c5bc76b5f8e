package ctl_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weftnet/weft/ctl/ctltest"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// The names are arguments of other commands, one a line.
func TestNamesOfRows(t *testing.T) {
	for command, want := range map[string]string{
		"attachments": "default/a\nplain\n", "attachments -n default": "default/a\n", "counters": "default/a\nplain\n",
		"events": "1\n2\n3\n", "event 2": "2\n", "transactions": "4\n5\n6\n", "transaction 5": "5\n",
		"objects": "vpp.vrf/weft:pods/ip4\nvpp.route/weft:pods/ip4/10.1.0.3/32\nlinux.route/x\n",
	} {
		if got, code, _ := answer(t, ctltest.Sample(now),
			append(strings.Fields(command), "-o", "name")...); code != 0 ||
			got != want {
			t.Errorf("%s: exit code %d\n%s", command, code, got)
		}
	}
	for _, command := range []string{"addresses", "devices", "gc --dry-run"} {
		got, code, _ := answer(t, ctltest.Sample(now), append(strings.Fields(command), "-o", "name")...)
		if code != 0 || got == "" || strings.Contains(got, " ") {
			t.Errorf("%s: exit code %d\n%s", command, code, got)
		}
	}
	if got, code, _ := answer(t, ctltest.Sample(now), "status", "-o", "name"); code != 2 ||
		!strings.Contains(got, "has no names") {
		t.Errorf("status: exit code %d: %s", code, got)
	}
}

func TestTemplatesSelectPartsOfDocuments(t *testing.T) {
	for _, tt := range []struct {
		command, template, want string
		code                    int
	}{
		{"attachments", "{.attachments[*].pod.name}", "a\n", 0},
		{"attachments", `{range .attachments[*]}{.netns}{"\n"}{end}`, "/run/netns/a\n/run/netns/plain\n", 0},
		{"status", ".ready", "true\n", 0},
		{"status", "version", "weft v0.1.0 (3f2a9c1d0b4e)\n", 0},
		{"events", "{.seq} {.owners[0].interface}", "1 eth0\n2 eth0\n", 1}, // the third event concerns no pod
		{"transactions", "{.transactions[?(@.seq>4)].seq}", "5 6\n", 0},
		{"transactions", "{.transactions[?(@.seq==5)].seq}", "5\n", 0},
		{"objects", "{.objects[?(@.phase=='pending')].owners[*].pod.name}", "b\n", 0},
		{"status", "{.nothing}", "\n", 0}, // as kubectl
		{"status", "", "weftctl: --output jsonpath=: no path; -o json prints all keys\n", 2},
		{"status", "{.ready", "weftctl: --output jsonpath={.ready: unclosed action\n", 2},
	} {
		got, code, _ := answer(t, ctltest.Sample(now), tt.command, "-o", "jsonpath="+tt.template)
		if code != tt.code || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s %s: exit code %d\n%s", tt.command, tt.template, code, got)
		}
	}
}

// A name of a pod with control characters does not reach the terminal by a template either.
func TestTemplatesPrintNoControlCharacters(t *testing.T) {
	got, code, _ := answer(t, ctltest.Sample(now), "attachments", "-o", "jsonpath={.attachments[*].annotations}")
	if code != 0 || strings.Contains(got, "\x1b") {
		t.Errorf("exit code %d: %q", code, got)
	}
}

// Commands that take a pod find it by -n NAMESPACE NAME, before and after the command.
func TestNamespaceOfAPod(t *testing.T) {
	podOf := func(m any) string {
		switch req := m.(type) {
		case *operatorv1.AttachmentsRequest:
			return req.Pod
		case *operatorv1.EventsRequest:
			return req.Pod
		case *operatorv1.ObjectsRequest:
			return req.Pod
		case *operatorv1.PolicyRequest:
			return req.Pod + " from " + req.From
		}
		return ""
	}
	for line, want := range map[string]string{
		"-n default attachments a":                                  "default/a",
		"attachments a -n default":                                  "default/a",
		"attachments default/a --namespace default":                 "default/a",
		"events --pod a -n default":                                 "default/a",
		"-n default objects --pod a":                                "default/a",
		"policy a --from b -n default":                              "default/a from default/b",
		"policy a --from 10.0.0.1 -n default":                       "default/a from 10.0.0.1",
		"attachments a -n default -o jsonpath=attachments[0].netns": "default/a",
	} {
		got, code, agent := answer(t, ctltest.Sample(now), strings.Fields(line)...)
		if requests := agent.Requests(); code != 0 || len(requests) != 1 || podOf(requests[0]) != want {
			t.Errorf("%s: exit code %d, requests %v\n%s", line, code, requests, got)
		}
	}
	for line, want := range map[string]string{
		"attachments shop/a -n default": "--namespace default: shop/a is not in this namespace",
		"status -n default":             "--namespace default: status names no pod",
		"pod a":                         `invalid pod "a": must be NAMESPACE/NAME, or -n NAMESPACE NAME`,
	} {
		if got, code, _ := answer(t, ctltest.Sample(now), strings.Fields(line)...); code != 2 ||
			!strings.Contains(got, want) {
			t.Errorf("%s: exit code %d: %s", line, code, got)
		}
	}
}

var errAway = errors.New("away")

// Each command that names a pod in its usage takes --namespace.
func TestEachCommandWithAPodTakesANamespace(t *testing.T) {
	for _, line := range []string{
		"pod", "attachments", "trace", "capture", "diff", "graph", "quarantine release", "policy",
		"dataplane interfaces", "dataplane memifs",
		"dataplane drops", "dataplane fib", "dataplane bridges", "dataplane neighbours",
	} {
		got, _, _ := answer(t, ctltest.Replies{Err: errAway},
			append(strings.Fields(line), "other/cart", "-n", "shop")...)
		if !strings.Contains(got, "other/cart is not in this namespace") {
			t.Errorf("%s does not use the namespace: %s", line, got)
		}
	}
	for _, line := range []string{"events", "objects", "counters"} {
		got, _, _ := answer(t, ctltest.Replies{Err: errAway}, line, "--pod", "other/cart", "-n", "shop")
		if !strings.Contains(got, "other/cart is not in this namespace") {
			t.Errorf("%s does not use the namespace: %s", line, got)
		}
	}
}

// Each deletion of a shared transaction says how many of the operations are its own.
func TestEventsSayThatTheyShareATransaction(t *testing.T) {
	replies := ctltest.Sample(now)
	for seq := uint64(7); seq <= 8; seq++ {
		replies.Events = append(replies.Events, &operatorv1.EventRecord{
			Seq:          seq,
			Event:        "delete pod default/a eth0 (weft, sandbox c0ffee000001)",
			Operations:   1,
			Transactions: []uint64{4},
			SharedWith:   []uint64{15 - seq},
		})
	}
	got, code, _ := answer(t, replies, "event", "7")
	if code != 0 ||
		!strings.Contains(got, "transaction 4 (1 operation of this event, the others of #8): weftctl transaction 4\n") {
		t.Errorf("exit code %d\n%s", code, got)
	}
	got, code, _ = answer(t, replies, "pod", "default/a")
	if code != 0 ||
		!strings.Contains(strings.Join(strings.Fields(got), " "),
			"2 operations (1 operation of this event, the others of #7)") {
		t.Errorf("exit code %d\n%s", code, got)
	}
}
