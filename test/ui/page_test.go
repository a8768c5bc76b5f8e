package ui_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
)

// maxScreenshot is the largest size of a screenshot.
const maxScreenshot = 200 << 10

// views are the views of the page, with conditions that hold when they show what the node of stage has.
var views = []struct {
	name, ready string
	act         string // before the screenshot
}{
	{
		"topology",
		`document.querySelectorAll('.edge.busy').length >= 3 && document.querySelectorAll('.box.pod').length >= 2 && /shop\/cart/.test(document.querySelector('.topology').textContent) && /Mbit|kbit/.test((document.querySelector('.rate') || document.body).textContent)`,
		"",
	},
	{
		"events",
		`document.querySelector('.live.on') && /shop\/cart/.test(document.body.innerText) && document.querySelector('.tag.bad')`,
		"",
	},
	{
		"event",
		`document.querySelectorAll('.bar.operation').length > 5 && document.querySelectorAll('.bar.handler').length > 1 && document.querySelector('h2.undo') && document.querySelectorAll('.bar.undone').length > 5 && [...document.querySelectorAll('.bar.operation .name')].some(n => n.textContent.includes('…')) && [...document.querySelectorAll('.bar.operation .name')].every(n => !n.textContent.endsWith('…'))`,
		"",
	},
	{
		"objects", `document.querySelectorAll('.list-pane tbody tr').length > 20`,
		`[...document.querySelectorAll('.list-pane button')].find(b => b.textContent.startsWith('vpp.interface/')).click()`,
	},
	{
		"addresses",
		`document.querySelectorAll('.cell.used').length >= 4 && document.querySelectorAll('.cell.cooling').length >= 1`,
		`document.querySelector('.cell.used').click()`,
	},
	{
		"drops",
		`document.querySelectorAll('.stat').length === 4 && document.querySelectorAll('main tbody tr').length > 2 && !document.querySelector('main').textContent.includes('…')`,
		"",
	},
}

// after are conditions on the detail that act selects.
var after = map[string]string{
	"objects":   `document.querySelector('.why') && /in sync/.test((document.querySelector('.why') || document.body).textContent) && document.querySelectorAll('.detail tbody tr').length > 3`,
	"addresses": `/shop\/c/.test(document.querySelector('.detail').textContent)`,
}

func TestPageInABrowser(t *testing.T) {
	browser := chromium(t)
	n, address := stage(t)
	ctx := start(t, browser)
	problems := observe(ctx, address)
	must.Succeed(t, chromedp.Run(ctx, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(address)))
	await(t, ctx, `document.querySelector('.chip')`)
	var location string
	must.Succeed(t, chromedp.Run(ctx, chromedp.Location(&location)))
	if _, token, _ := strings.Cut(address, "#"); strings.Contains(location, token) {
		t.Errorf("the token stays in the address bar: %s", location)
	}
	for _, scheme := range []string{"light", "dark"} {
		emulate(t, ctx, scheme)
		for _, v := range views {
			t.Run(scheme+"/"+v.name, func(t *testing.T) {
				show(t, ctx, v.name)
				await(t, ctx, v.ready)
				if v.act != "" {
					must.Succeed(t, chromedp.Run(ctx, chromedp.Evaluate(v.act, nil)))
					await(t, ctx, after[v.name])
				}
				checkContrast(t, ctx)
				checkNames(t, ctx)
				screenshot(t, ctx, v.name, scheme)
			})
		}
	}
	t.Run("keyboard", func(t *testing.T) { checkKeyboard(t, ctx) })
	found := problems()
	t.Run("restart", func(t *testing.T) { checkRestart(t, ctx, n) })
	for _, p := range found {
		t.Error(p)
	}
}

// start starts the browser.
func start(t *testing.T, path string) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(startTimeout))
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		cancel()
		stop()
	})
	return ctx
}

// observe collects requests to other origins, messages of the console, exceptions, and violations of the
// Content-Security-Policy.
func observe(ctx context.Context, address string) func() []string {
	var mu sync.Mutex
	var problems []string
	add := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	own, _ := url.Parse(address)
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if u, err := url.Parse(e.Request.URL); err != nil || (u.Host != own.Host && u.Scheme != "data") {
				add("the page requests %s", e.Request.URL)
			}
		case *runtime.EventExceptionThrown:
			add("exception: %s", e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			add("console: %s", e.Type)
		case *log.EventEntryAdded:
			add("log: %s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return problems
	}
}

// emulate sets the user's preferences.
func emulate(t *testing.T, ctx context.Context, scheme string) {
	t.Helper()
	preferences := []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}
	must.Succeed(t, chromedp.Run(ctx, emulation.SetEmulatedMedia().WithFeatures(preferences)))
}

// show opens a view. The event is the failed one.
func show(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	script := fmt.Sprintf(`location.hash = '#/%s'`, name)
	if name == "event" {
		script = `fetch('/api/events').then(r => r.json()).then(d => { location.hash = '#/event?seq=' + d.events.find(e => e.undone).seq })`
	}
	must.Succeed(t, chromedp.Run(ctx, chromedp.Evaluate(script, nil)))
	await(t, ctx, fmt.Sprintf(`document.querySelector('weft-%s h1')`, name))
}

// await waits until a condition holds in the page.
func await(t *testing.T, ctx context.Context, condition string) {
	t.Helper()
	limited, cancel := within(ctx)
	defer cancel()
	if err := chromedp.Run(limited, chromedp.Poll("!!("+condition+")", nil)); err != nil {
		var text string
		_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText`, &text))
		t.Fatalf("%s: %v\n%s", condition, err, text)
	}
}

// screenshot checks that the view can be drawn and, with -update, stores it.
func screenshot(t *testing.T, ctx context.Context, name, scheme string) {
	t.Helper()
	var picture []byte
	capture := chromedp.ActionFunc(chromedp.CaptureScreenshot(&picture).Do)
	if name == "event" {
		capture = chromedp.ActionFunc(func(ctx context.Context) (err error) { // the rollback is at the end
			var height float64
			if err := chromedp.Evaluate(`document.documentElement.scrollHeight`, &height).Do(ctx); err != nil {
				return err
			}
			clip := &page.Viewport{Width: 1280, Height: height, Scale: 0.55}
			picture, err = page.CaptureScreenshot().WithCaptureBeyondViewport(true).WithClip(clip).Do(ctx)
			return err
		})
	}
	must.Succeed(t, chromedp.Run(ctx, chromedp.Evaluate(`scrollTo(0, 0)`, nil), capture))
	if len(picture) > maxScreenshot {
		t.Errorf("the screenshot has %d bytes", len(picture))
	}
	if !*update || (scheme == "dark" && name != "topology") {
		return
	}
	if scheme == "dark" {
		name += "-dark"
	}
	must.Succeed(t, os.WriteFile(filepath.Join("..", "..", "docs", "ui", name+".png"), picture, 0o644))
}

// checkRestart checks that the page says that the agent is away, and shows the events of its successor.
func checkRestart(t *testing.T, ctx context.Context, n *node.Node) {
	show(t, ctx, "events")
	await(t, ctx, `document.querySelector('.live.on')`)
	must.Succeed(t, n.KillAgent())
	await(t, ctx,
		`/does not answer/.test(document.getElementById('readiness').textContent) && !document.querySelector('.live.on')`)
	must.Succeed(t, n.StartAgent(t.Context()))
	await(t, ctx,
		`document.querySelector('.live.on') && document.querySelector('.chip.good') && [...document.querySelectorAll('main tbody tr')].slice(0, 2).some((r) => /full resync/.test(r.textContent))`)
}

// checkNames checks that no name of a pod was parsed as markup.
func checkNames(t *testing.T, ctx context.Context) {
	t.Helper()
	var found bool
	must.Succeed(t,
		chromedp.Run(ctx,
			chromedp.Evaluate(`document.title === 'owned' || !!document.querySelector('main img')`, &found)))
	if found {
		t.Error("a pod's name was parsed as markup")
	}
}

// checkContrast computes the contrast of texts with their backgrounds (WCAG 2.2 AA: 4.5).
func checkContrast(t *testing.T, ctx context.Context) {
	t.Helper()
	var low []string
	must.Succeed(t, chromedp.Run(ctx, chromedp.Evaluate(contrast, &low)))
	for _, line := range low {
		t.Error(line)
	}
}

// checkKeyboard goes from the skip link to a view and into a map without a pointer.
func checkKeyboard(t *testing.T, ctx context.Context) {
	show(t, ctx, "topology")
	focused := func(want string) {
		t.Helper()
		await(t, ctx,
			fmt.Sprintf(
				`document.activeElement.matches(%q) && getComputedStyle(document.activeElement).outlineStyle !== 'none'`,
				want))
	}
	press := func(key string) { t.Helper(); must.Succeed(t, chromedp.Run(ctx, chromedp.KeyEvent(key))) }
	must.Succeed(t,
		chromedp.Run(ctx,
			chromedp.Evaluate(`document.activeElement.blur(); document.getElementById('skip').focus()`, nil)))
	press(kb.Tab)
	focused(`nav a[aria-current="page"]`)
	for range 3 {
		press(kb.ArrowRight)
	}
	focused(`nav a[href="#/addresses"]`)
	press(kb.Enter)
	await(t, ctx, `document.querySelectorAll('.cell').length > 100`)
	press(kb.Tab) // the button of the conditions
	focused(`.chip`)
	press(kb.Enter)
	await(t, ctx, `!document.getElementById('conditions').hidden`)
	press(kb.Tab)
	focused(`.cell`)
	press(kb.ArrowRight)
	press(kb.ArrowRight)
	focused(`.cell:nth-child(3)`)
	press(kb.Enter)
	await(t, ctx, `/10\.1\.0\.2/.test(document.querySelector('.detail').textContent)`)
}
