package ui_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/agent/ui"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
	"github.com/weftnet/weft/test/must"
)

// crowd is an agent with many pods, each with eth0 and a memif. The page's own code and handler show them; only the
// agent's state is made up, because no test machine carries so many pods.
type crowd struct {
	operatorv1.UnimplementedOperationsServer
	pods int
}

func (c crowd) each(f func(i int, key *weftv1.Attachment, pod *weftv1.Pod)) {
	for i := range c.pods {
		f(i, &weftv1.Attachment{ContainerId: fmt.Sprintf("%064x", i), Network: "weft", IfName: "eth0"},
			&weftv1.Pod{Namespace: fmt.Sprintf("tenant-%d", i%20), Name: fmt.Sprintf("worker-%d", i)})
	}
}

// addressOf returns an address of a pool 10.1.0.0/16 or 10.5.0.0/16.
func addressOf(network, i int) string {
	return fmt.Sprintf("10.%d.%d.%d", network, (i+2)/256, (i+2)%256)
}

func (c crowd) State(context.Context, *operatorv1.StateRequest) (*operatorv1.StateReply, error) {
	return &operatorv1.StateReply{
		Version:     "v0",
		Started:     timestamppb.Now(),
		Ready:       true,
		Attachments: uint32(c.pods),
		Events:      uint64(c.pods),
		Conditions:  []*operatorv1.Condition{{Name: "started", Ok: true}}, Dataplane: "weft-vswitch",
	}, nil
}

func (c crowd) Attachments(context.Context, *operatorv1.AttachmentsRequest) (*operatorv1.AttachmentsReply, error) {
	reply := &operatorv1.AttachmentsReply{}
	c.each(func(i int, key *weftv1.Attachment, pod *weftv1.Pod) {
		reply.Attachments = append(reply.Attachments, &operatorv1.AttachmentInfo{
			Attachment: key,
			Pod:        pod,
			Interfaces: []*operatorv1.InterfaceInfo{
				{
					Name:      "eth0",
					Type:      "tap",
					Object:    fmt.Sprintf("tap-%d", i),
					Mtu:       1450,
					Addresses: []string{addressOf(1, i) + "/32"},
				},
				{
					Name:      "m1",
					Type:      "memif",
					Network:   "blue",
					Object:    fmt.Sprintf("memif-%d", i),
					Mtu:       1450,
					Addresses: []string{addressOf(5, i) + "/16"},
				},
			},
		})
	})
	return reply, nil
}

func (c crowd) Counters(context.Context, *operatorv1.CountersRequest) (*operatorv1.CountersReply, error) {
	reply := &operatorv1.CountersReply{}
	connected := true
	now := uint64(time.Now().UnixMilli())
	c.each(func(i int, key *weftv1.Attachment, pod *weftv1.Pod) {
		for _, name := range []string{"eth0", "m1"} {
			n := &operatorv1.InterfaceCounters{
				Attachment: key,
				Pod:        pod,
				Interface:  name,
				Type:       "tap",
				RxPackets:  now,
				RxBytes:    now * 100,
				TxPackets:  now,
				TxBytes:    now * 100,
				TxDrops:    uint64(i),
			}
			if name == "m1" {
				n.Type = "memif"
				n.Connected = &connected
			}
			reply.Interfaces = append(reply.Interfaces, n)
		}
	})
	for i := range c.pods {
		reply.Errors = append(reply.Errors, &operatorv1.ErrorCounter{
			Node:   fmt.Sprintf("node-%d", i),
			Reason: "no route",
			Count:  uint64(i + 1),
		})
	}
	return reply, nil
}

func (c crowd) Addresses(context.Context, *operatorv1.AddressesRequest) (*operatorv1.AddressesReply, error) {
	reply := &operatorv1.AddressesReply{Pools: []*operatorv1.Pool{
		{Name: "default", Prefix: "10.1.0.0/16", Used: uint64(c.pods)}, {
			Name:   "blue",
			Prefix: "10.5.0.0/16",
			Used:   uint64(c.pods),
		},
	}}
	c.each(func(i int, _ *weftv1.Attachment, pod *weftv1.Pod) {
		reply.Leases = append(reply.Leases, &operatorv1.Lease{
			Pool:      "default",
			Address:   addressOf(1, i),
			State:     "used",
			Pod:       pod,
			Interface: "eth0",
		},
			&operatorv1.Lease{Pool: "blue", Address: addressOf(5, i), State: "used", Pod: pod, Interface: "m1"})
	})
	return reply, nil
}

func (c crowd) Objects(_ context.Context, r *operatorv1.ObjectsRequest) (*operatorv1.ObjectsReply, error) {
	reply := &operatorv1.ObjectsReply{}
	for i := range 10 * c.pods {
		if ref := fmt.Sprintf("vpp.route/%d", i); strings.HasPrefix(ref, r.Prefix) {
			reply.Objects = append(reply.Objects, &operatorv1.Object{Ref: ref, Phase: "InSync", Desired: []byte(`{}`)})
		}
	}
	return reply, nil
}

func (c crowd) Events(r *operatorv1.EventsRequest, s grpc.ServerStreamingServer[operatorv1.EventRecord]) error {
	first := max(1, int(r.Since))
	if r.Last > 0 {
		first = max(first, c.pods-int(r.Last)+1)
	}
	for i := first; i <= c.pods; i++ {
		e := &operatorv1.EventRecord{
			Seq:        uint64(i),
			Event:      fmt.Sprintf("add pod tenant-%d/worker-%d eth0", i%20, i),
			Kind:       "update",
			Arrived:    timestamppb.Now(),
			Took:       durationpb.New(time.Millisecond),
			Operations: 9,
		}
		if err := s.Send(e); err != nil {
			return err
		}
	}
	if r.Follow {
		<-s.Context().Done()
	}
	return nil
}

// crowdViews are the views with conditions that hold when they show all pods, in figures if not in rows.
var crowdViews = []struct{ name, ready string }{
	{
		"topology",
		`/^1,?000$/.test(document.querySelector('.stat dd')?.textContent) && /2,?000 interfaces; the 200/.test(document.body.innerText) && document.querySelectorAll('.box.pod').length === 2 && /Mbit|kbit/.test(document.querySelector('.rate')?.textContent)`,
	},
	{
		"events",
		`document.querySelectorAll('main tbody tr').length >= 100 && /worker-1000/.test(document.querySelector('main tbody')?.textContent)`,
	},
	{
		"objects",
		`document.querySelectorAll('.list-pane tbody tr').length >= 100 && /10,?000/.test(document.querySelector('main').textContent)`,
	},
	{"addresses", `document.querySelectorAll('.cell.used').length >= 6`},
	{"drops", `document.querySelectorAll('main tbody tr').length === 400`},
}

// maxElements limits the elements of a view: lists are bounded, so their number does not grow with the pods.
const maxElements = 6000

func TestPageWithAThousandPods(t *testing.T) {
	browser := chromium(t)
	stopping := make(chan struct{})
	server := httptest.NewServer(ui.Handler(&ui.API{Operations: crowd{pods: 1000}, Stopping: stopping}))
	defer server.Close()
	defer close(stopping)
	ctx := start(t, browser)
	problems := observe(ctx, server.URL)
	must.Succeed(t, chromedp.Run(ctx, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(server.URL)))
	for _, v := range crowdViews {
		t.Run(v.name, func(t *testing.T) {
			began := time.Now()
			show(t, ctx, v.name)
			await(t, ctx, v.ready)
			t.Logf("shown after %s", time.Since(began).Round(time.Millisecond))
			var elements int
			must.Succeed(t, chromedp.Run(ctx, chromedp.Evaluate(`document.querySelectorAll('*').length`, &elements)))
			if elements > maxElements {
				t.Errorf("%d elements, at most %d expected", elements, maxElements)
			}
		})
	}
	t.Run("one of them is found", func(t *testing.T) {
		show(t, ctx, "topology")
		await(t, ctx, crowdViews[0].ready)
		must.Succeed(t, chromedp.Run(ctx, chromedp.SendKeys("#t-q", "worker-777", chromedp.ByQuery)))
		await(t, ctx,
			`document.querySelectorAll('.box.pod').length === 1 && /tenant-17\/worker-777/.test(document.querySelector('.box.pod')?.textContent) && document.querySelectorAll('main tbody tr').length === 2`)
	})
	t.Run("each of them has a link", func(t *testing.T) {
		show(t, ctx, "events") // the topology keeps its filter
		show(t, ctx, "topology")
		await(t, ctx, crowdViews[0].ready+` && document.querySelector('.box.pod a[href="#/topology?q=blue"]')`)
		must.Succeed(t, chromedp.Run(ctx, chromedp.Evaluate(`document.querySelector('main summary').click()`, nil)))
		await(t, ctx,
			`/All 1,?000 pods/.test(document.querySelector('main summary').textContent) && document.querySelectorAll('.pods a').length === 1000 && document.querySelector('.pods a[href="#/pod?name=tenant-19%2Fworker-999"]')`)
	})
	for _, p := range problems() {
		t.Error(p)
	}
}
