package ui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weftnet/weft/agent/ui"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
	"github.com/weftnet/weft/test/must"
)

// few is an agent with a few pods. Its objects, events and counters name the pods.
type few struct{ crowd }

func ownedBy(i int) []*operatorv1.ObjectOwner {
	return []*operatorv1.ObjectOwner{
		{
			Pod:       &weftv1.Pod{Namespace: fmt.Sprintf("tenant-%d", i), Name: fmt.Sprintf("worker-%d", i)},
			Interface: "eth0",
		},
	}
}

func (f few) State(ctx context.Context, r *operatorv1.StateRequest) (*operatorv1.StateReply, error) {
	state, err := f.crowd.State(ctx, r)
	state.Node = "rack-7"
	state.Conditions = append(state.Conditions, &operatorv1.Condition{Name: "quarantine", Ok: true})
	return state, err
}

func (f few) Attachments(ctx context.Context, r *operatorv1.AttachmentsRequest) (*operatorv1.AttachmentsReply, error) {
	reply, err := f.crowd.Attachments(ctx, r)
	for _, a := range reply.Attachments {
		if r.Pod == a.Pod.Namespace+"/"+a.Pod.Name {
			reply.Attachments = []*operatorv1.AttachmentInfo{a}
		}
	}
	return reply, err
}

func (f few) Objects(context.Context, *operatorv1.ObjectsRequest) (*operatorv1.ObjectsReply, error) {
	reply := &operatorv1.ObjectsReply{}
	for i := range f.pods {
		reply.Objects = append(reply.Objects, &operatorv1.Object{
			Ref:     fmt.Sprintf("linux.veth/weft-%016x-eth0", i),
			Phase:   "Failed",
			Error:   "file exists",
			Desired: []byte(`{}`),
			Owners:  ownedBy(i),
		})
	}
	return reply, nil
}

func (f few) Transactions(context.Context, *operatorv1.TransactionsRequest) (*operatorv1.TransactionsReply, error) {
	return &operatorv1.TransactionsReply{}, nil
}

func (f few) Why(_ context.Context, r *operatorv1.WhyRequest) (*operatorv1.WhyReply, error) {
	return &operatorv1.WhyReply{Found: true, Lines: []string{r.Ref + " is Failed"}}, nil
}

func (f few) Counters(ctx context.Context, r *operatorv1.CountersRequest) (*operatorv1.CountersReply, error) {
	reply, err := f.crowd.Counters(ctx, r)
	reply.Errors = append(reply.Errors, &operatorv1.ErrorCounter{
		Node:        "ip6-input",
		Reason:      "multicast not forwarded",
		Count:       77,
		Statistic:   true,
		Explanation: "multicast that stays on its link",
	})
	return reply, err
}

// pageOf opens the page of an agent. While stalled is true, the agent does not answer.
func pageOf(t *testing.T, width int64, stalled *atomic.Bool) context.Context {
	t.Helper()
	browser := chromium(t)
	stopping := make(chan struct{})
	page := ui.Handler(&ui.API{Operations: few{crowd{pods: 5}}, Stopping: stopping})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stalled.Load() && strings.HasPrefix(r.URL.Path, "/api/") {
			<-r.Context().Done()
			return
		}
		page.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stopping) })
	ctx := start(t, browser)
	must.Succeed(t, chromedp.Run(ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate(server.URL)))
	await(t, ctx, `document.querySelector('.chip')`)
	return ctx
}

// smallViews are all views, with the hash of the URL and a condition that holds when they are shown.
var smallViews = []struct{ name, hash, ready string }{
	{
		"topology", "topology",
		`document.querySelectorAll('.box.pod').length === 5 && /bit\/s/.test(document.querySelector('.rate')?.textContent)`,
	},
	{"events", "events", `document.querySelectorAll('main tbody tr').length === 5`},
	{"event", "event?seq=3", `document.querySelector('.waterfall')`},
	{"objects", "objects", `document.querySelectorAll('.list-pane tbody tr').length === 5`},
	{"addresses", "addresses", `document.querySelectorAll('.cell.used').length >= 2`},
	{"drops", "drops", `document.querySelectorAll('main tbody tr').length > 5`},
	{"pod", "pod?name=tenant-2%2Fworker-2", `document.querySelectorAll('main tbody tr').length > 2`},
}

func goTo(t *testing.T, ctx context.Context, hash, ready string) {
	t.Helper()
	must.Succeed(t, chromedp.Run(ctx, chromedp.Evaluate(fmt.Sprintf(`location.hash = '#/%s'`, hash), nil)))
	await(t, ctx, ready)
}

// An agent that is stopped accepts connections and does not answer.
func TestPageOfAStoppedAgentIsNotGreen(t *testing.T) {
	var stalled atomic.Bool
	ctx := pageOf(t, 1280, &stalled)
	goTo(t, ctx, smallViews[0].hash, smallViews[0].ready)
	await(t, ctx,
		`document.querySelector('.chip.good') && /^as of \d\d:\d\d:\d\d$/.test(document.getElementById('as-of').textContent)`)
	stalled.Store(true)
	await(t, ctx,
		`document.querySelector('.chip.bad') && /does not answer within/.test(document.querySelector('.chip').textContent) && document.body.classList.contains('stale')`)
	await(t, ctx, `!document.querySelector('.rate') && !document.querySelector('.edge.busy')`) // no rates of the past
	stalled.Store(false)
	await(t, ctx,
		`document.querySelector('.chip.good') && !document.body.classList.contains('stale') && document.querySelector('.rate')`)
}

func TestEachViewNamesItsNodeAndFitsAPhone(t *testing.T) {
	ctx := pageOf(t, 400, new(atomic.Bool))
	for _, v := range smallViews {
		t.Run(v.name, func(t *testing.T) {
			goTo(t, ctx, v.hash, v.ready)
			await(t, ctx,
				`/ · rack-7 · Weft$/.test(document.title) && document.getElementById('node').textContent === 'rack-7'`)
			var wide []string
			script := `document.documentElement.scrollWidth <= 400 ? [] : [...document.querySelectorAll('body *')].filter((e) => !e.closest('.scroll') && e.getBoundingClientRect().right > 400.5).map((e) => e.tagName + '.' + e.className + ' ' + Math.round(e.getBoundingClientRect().right))`
			must.Succeed(t, chromedp.Run(ctx, chromedp.Evaluate(script, &wide)))
			if len(wide) > 0 {
				t.Errorf("wider than 400 px: %v", wide)
			}
		})
	}
}

// From each view of things that belong to pods, links lead to the pod, and from the pod back to its objects and events.
func TestPodsAreLinks(t *testing.T) {
	ctx := pageOf(t, 1280, new(atomic.Bool))
	const link = `a[href="#/pod?name=tenant-2%2Fworker-2"]`
	for _, v := range smallViews[:6] {
		t.Run(v.name, func(t *testing.T) {
			goTo(t, ctx, v.hash, v.ready)
			if v.name == "addresses" {
				must.Succeed(t,
					chromedp.Run(ctx, chromedp.Evaluate(`document.querySelector('.cell.used').click()`, nil)))
			}
			want := link
			if v.name == "event" { // of another pod
				want = `a[href="#/pod?name=tenant-3%2Fworker-3"]`
			}
			await(t, ctx, fmt.Sprintf(`document.querySelector('main %s')`, want))
		})
	}
	goTo(t, ctx, "topology", fmt.Sprintf(`document.querySelector('.box.pod %s')`, link))
	must.Succeed(t,
		chromedp.Run(ctx, chromedp.Evaluate(fmt.Sprintf(`document.querySelector('table %s').click()`, link), nil)))
	await(t, ctx,
		`document.querySelector('weft-pod h1')?.textContent === 'tenant-2/worker-2' && /linux.veth.*tenant-2\/worker-2:eth0/.test(document.querySelector('main').textContent)`)
	await(t, ctx,
		`document.querySelector('a[href="#/objects?q=tenant-2%2Fworker-2%3A"]') && document.querySelector('a[href="#/events?q=tenant-2%2Fworker-2"]')`)
	goTo(t, ctx, "objects?q=tenant-2%2Fworker-2%3A", `document.querySelectorAll('.list-pane tbody tr').length === 1`)
}

// Multicast that stays on its link, and other counters that count no losses, are not among the drops.
func TestNormalMulticastIsNoDrop(t *testing.T) {
	ctx := pageOf(t, 1280, new(atomic.Bool))
	goTo(t, ctx, "drops", `document.querySelectorAll('main tbody tr').length > 5`)
	await(t, ctx,
		`/multicast not forwarded/.test(document.querySelector('details.normal')?.textContent) && /no drops: 1/.test(document.querySelector('summary')?.textContent)`)
	await(t, ctx,
		`![...document.querySelectorAll('[aria-label="Drops by reason"]')].some((e) => /multicast/.test(e.textContent))`)
}
