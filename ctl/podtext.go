package ctl

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// width is the width of the text about a pod, in columns.
const width = 80

// printStory prints the story of a pod, for one screen.
func printStory(p *printer, s *story) {
	state, cause := s.state()
	shown := p.good(state)
	if state != podRunning && state != podDeleted {
		shown = p.bad(state)
	}
	p.printf("pod %s: %s, %s ago\n", s.pod, shown, p.age(s.since()))
	if cause != "" {
		p.field("cause", oneLine(cause))
	}
	for _, a := range s.attachments {
		printAttachment(p, s, a)
	}
	printPodDevices(p, s)
	for _, q := range s.quarantine {
		p.field("quarantine",
			fmt.Sprintf("%s since %s, %s: %s", q.State, p.clock(q.Since), counted(int(q.Crashes), "crash"),
				oneLine(q.Reason)))
	}
	printPodObjects(p, s)
	printPodEvents(p, s)
	for _, m := range s.missing {
		p.field("not read", m)
	}
}

// field prints a name and a text, which continues on further lines below its start.
func (p *printer) field(name, content string) {
	const indent = 14
	wrapped := text.WrapSoft(content, width-indent)
	for i, line := range strings.Split(wrapped, "\n") {
		if i > 0 {
			name = ""
		}
		p.printf("  %-*s%s\n", indent-2, name, strings.TrimRight(line, " "))
	}
}

func printAttachment(p *printer, s *story, a *operatorv1.AttachmentInfo) {
	key := a.GetAttachment()
	p.printf("\nrequest %s of sandbox %s\n", key.GetNetwork(), shortID(key.GetContainerId()))
	p.field("arrived", fmt.Sprintf("%s (%s ago)", p.clock(a.Created), p.age(a.Created)))
	p.field("annotations", "from "+orDash(a.AnnotationsFrom))
	printAnnotations(p, "", a.Annotations)
	p.field("namespace", orDash(a.Netns))
	for _, i := range a.Interfaces {
		printPodInterface(p, s, key, i)
	}
}

// printAnnotations prints the requests of a pod, an annotation a line.
func printAnnotations(p *printer, name string, annotations map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		p.field(name, key+": "+oneLine(annotations[key]))
		name = ""
	}
}

// networkOf returns the name of an interface's network, which the agent omits for the default network.
func networkOf(i *operatorv1.InterfaceInfo) string { return cmp.Or(i.Network, "default") }

func printPodInterface(p *printer, s *story, key *weftv1.Attachment, i *operatorv1.InterfaceInfo) {
	p.printf("\ninterface %s: %s on network %s, MTU %d, MAC %s\n", i.Name, orDash(i.Type), networkOf(i), i.Mtu,
		orDash(i.Mac))
	p.field("dataplane", orDash(i.Object))
	if i.Peer != "" {
		p.field("peer", i.Peer)
	}
	p.field("addresses", orDash(strings.Join(i.Addresses, ", ")))
	if len(i.Moving) > 0 {
		p.field("may also use", strings.Join(i.Moving, ", "))
	}
	if i.Limits != "" {
		p.field("limits", i.Limits)
	}
	for _, c := range s.counters {
		if c.Interface != i.Name || c.Attachment.GetContainerId() != key.GetContainerId() ||
			c.Attachment.GetIfName() != key.GetIfName() {
			continue
		}
		p.field("received", fmt.Sprintf("%d packets, %d bytes, %d dropped", c.RxPackets, c.RxBytes, c.RxDrops))
		p.field("sent", fmt.Sprintf("%d packets, %d bytes, %d dropped", c.TxPackets, c.TxBytes, c.TxDrops))
		if i.Limits != "" {
			p.field("exceeded", fmt.Sprintf("%d packets to the pod, %d from the pod", c.RxExceeded, c.TxExceeded))
		}
		if c.Connected != nil {
			p.field("peer", map[bool]string{true: "connected", false: p.bad("not connected")}[*c.Connected])
		}
	}
	for _, e := range s.errors {
		if e.Node == i.Object {
			p.field("errors", fmt.Sprintf("%d times: %s", e.Count, oneLine(e.Reason)))
		}
	}
}

func printPodDevices(p *printer, s *story) {
	for n, d := range s.devices {
		if n == 0 {
			p.printf("\ndevices\n")
		}
		p.field(orDash(strings.Join(d.Devices, " ")), fmt.Sprintf("of container %s, allocated %s ago, socket %d, %s",
			orDash(d.Container), p.age(d.Created), d.Socket, d.Directory))
	}
}

func printPodObjects(p *printer, s *story) {
	if s.objects == 0 {
		return
	}
	p.printf("\n%s, %d not in sync\n", counted(s.objects, "object"), len(s.unsettled))
	for _, o := range s.unsettled {
		p.field(o.Phase, oneLine(reasonOf(o)))
	}
}

// printPodEvents prints the events, newest last. Of many, the first and the last ones are shown.
func printPodEvents(p *printer, s *story) {
	const (
		first = 2
		last  = 6
	)
	p.printf("\nevents\n")
	for n, e := range s.events {
		if hidden := len(s.events) - first - last; hidden > 0 && n >= first && n < first+hidden {
			if n == first {
				p.printf("  ... %d more events; -o json has all\n", hidden)
			}
			continue
		}
		printPodEvent(p, s, e)
	}
	if len(s.events) == 0 {
		p.printf("  none recorded\n")
	}
}

func printPodEvent(p *printer, s *story, e *operatorv1.EventRecord) {
	what, _, _ := strings.Cut(e.Event, " (")
	p.printf("  #%d  %s  %s  took %s\n", e.Seq, p.clock(e.Arrived), strings.Replace(what, "pod "+s.pod+" ", "", 1),
		took(e.Took))
	p.field("", eventResult(p, e, whole))
	if e.Error != "" { // there is no attachment that shows them
		printAnnotations(p, "requested", e.Request)
	}
	var steps []string
	for _, st := range e.Steps {
		if st.Took.AsDuration() >= 10*time.Microsecond || st.Error != "" {
			steps = append(steps, strings.TrimSpace(st.Name+" "+took(st.Took)))
		}
	}
	if len(steps) > 0 {
		p.field("steps", strings.Join(steps, ", "))
	}
	for _, seq := range e.Transactions {
		if t := s.transactions[seq]; t != nil {
			p.field("transaction",
				fmt.Sprintf("%d, %s%s, %s, %s", seq, counted(made(t), "operation"), sharedText(e), took(t.Took),
					transactionResult(p, t, whole)))
		}
	}
}
