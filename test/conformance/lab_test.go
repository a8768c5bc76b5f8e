package conformance

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/test/dataplane"
)

const (
	none    = ^interface_types.InterfaceIndex(0)
	unknown = interface_types.InterfaceIndex(4711)
	anyID   = ^uint32(0)
)

// lab runs a case on its own dataplane and writes the transcript.
type lab struct {
	*testing.T
	dataplane *dataplane.Dataplane
	client    *client
	printer   *printer
	lines     []string
	failed    bool // the last request was refused

	marker   index // an interface whose events follow all earlier ones; watch creates it
	markerUp bool
}

func newLab(t *testing.T) *lab {
	t.Helper()
	d := dataplane.Run(t, dataplane.Options{})
	c, err := dial(d.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.conn.Close() })
	return &lab{T: t, dataplane: d, client: c, printer: &printer{
		interfaces: map[uint32]string{0: "local0", uint32(unknown): "unknown"},
		replace:    strings.NewReplacer(d.Dir(), "RUN"),
	}}
}

// transcript returns the lines so far.
func (l *lab) transcript() string {
	if len(l.lines) == 0 {
		return ""
	}
	return strings.Join(l.lines, "\n") + "\n"
}

// note adds a line to the transcript.
func (l *lab) note(format string, args ...any) {
	l.lines = append(l.lines, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

// ask sends a message and writes it with its answers. It returns the reply, or the first details of a dump, or nil.
func (l *lab) ask(m api.Message) api.Message {
	l.Helper()
	return first(l.askAll(m))
}

func first(answers []api.Message) api.Message {
	if len(answers) == 0 {
		return nil
	}
	return answers[0]
}

func (l *lab) askAll(m api.Message) []api.Message {
	l.Helper()
	return l.writeAnswers(m, func([]api.Message) {})
}

// make sends a message that creates an interface, and names the interface for the transcript.
func (l *lab) make(name string, m api.Message) interface_types.InterfaceIndex {
	l.Helper()
	answers := l.writeAnswers(m, func(answers []api.Message) {
		if index := indexOf(first(answers)); index != none && result(answers[0]) == "ok" {
			l.printer.interfaces[uint32(index)] = name
		}
	})
	return indexOf(first(answers))
}

// indexOf returns the interface of a reply.
func indexOf(reply api.Message) interface_types.InterfaceIndex {
	if reply == nil {
		return none
	}
	field := reflect.ValueOf(reply).Elem().FieldByName("SwIfIndex")
	if !field.IsValid() {
		return none
	}
	return interface_types.InterfaceIndex(field.Uint())
}

// writeAnswers sends a message, calls look with the answers, and writes them. It sorts the details of a dump, because
// VPP's order is that of its hash tables.
func (l *lab) writeAnswers(m api.Message, inspect func([]api.Message)) []api.Message {
	l.Helper()
	request := strings.TrimSpace(m.GetMessageName() + " " + l.printer.fields(m))
	answers, err := l.client.ask(m)
	inspect(answers)
	l.note("> %s", request)
	l.failed = err != nil
	if err != nil {
		if !errors.Is(err, errNotServed) && !errors.Is(err, errWrongID) {
			l.Fatalf("%s: %v; the dataplane's process is %d\n%s", request, err, l.dataplane.PID(),
				l.dataplane.LogTail())
		}
		l.note("< %v", err)
		return nil
	}
	var lines []string
	for _, a := range answers {
		if strings.HasSuffix(a.GetMessageName(), "_details") {
			lines = append(lines, "< "+l.printer.fields(a))
			continue
		}
		lines = append(lines, "< "+result(a)+" "+l.printer.fields(a))
		l.failed = result(a) != "ok"
	}
	slices.Sort(lines)
	if len(lines) == 0 {
		lines = []string{"< nothing"}
	}
	for _, line := range lines {
		l.note("%s", line)
	}
	return answers
}

// must is ask for a message that has to succeed.
func (l *lab) must(m api.Message) api.Message {
	l.Helper()
	reply := l.ask(m)
	if l.failed {
		l.Fatalf("%s was refused:\n%s", m.GetMessageName(), l.transcript())
	}
	return reply
}

// watch subscribes to events of interfaces.
func (l *lab) watch() {
	l.Helper()
	answers, err := l.client.ask(loopback(99, "02:00:00:00:99:99"))
	if err != nil {
		l.Fatal(err)
	}
	l.marker = indexOf(first(answers))
	l.must(&interfaces.WantInterfaceEvents{EnableDisable: 1, PID: 42})
	l.settle()
}

// events waits for n events and writes them.
func (l *lab) events(n int) {
	l.Helper()
	for n > 0 {
		events, err := l.client.awaitEvents(1)
		if err != nil {
			l.Fatalf("waiting for %d events: %v\n%s", n, err, l.transcript())
		}
		for _, e := range events {
			if e.SwIfIndex != l.marker {
				l.note("event %s", l.printer.fields(e))
				n--
			}
		}
	}
}
