package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hostile = `</script><img src=x onerror=alert(1)>`

// agent is an agent with one pod that has a hostile name.
type agent struct {
	operatorv1.UnimplementedOperationsServer
	following chan struct{} // receives when a stream follows events
}

func (agent) Attachments(context.Context, *operatorv1.AttachmentsRequest) (*operatorv1.AttachmentsReply, error) {
	return &operatorv1.AttachmentsReply{Attachments: []*operatorv1.AttachmentInfo{{
		Attachment: &weftv1.Attachment{ContainerId: "c"}, Pod: &weftv1.Pod{Namespace: "shop", Name: hostile},
		Interfaces: []*operatorv1.InterfaceInfo{
			{Name: "eth0", Addresses: []string{"10.1.0.2/32"}},
			{Name: "blue0", Network: "blue", Addresses: []string{"10.1.0.9/24"}},
		},
	}}}, nil
}

func (agent) Addresses(context.Context, *operatorv1.AddressesRequest) (*operatorv1.AddressesReply, error) {
	return &operatorv1.AddressesReply{
		Pools: []*operatorv1.Pool{{Name: "pods", Prefix: "10.1.0.0/16"}},
		Leases: []*operatorv1.Lease{
			{
				Pool:      "pods",
				Address:   "10.1.0.2",
				State:     "used",
				Pod:       &weftv1.Pod{Namespace: "shop", Name: hostile},
				Interface: "eth0",
			},
			{Pool: "pods", Address: "10.1.1.0", State: "cooling"}, {Pool: "pods", Address: "10.1.0.9", State: "used"},
		},
	}, nil
}

func (agent) Objects(_ context.Context, r *operatorv1.ObjectsRequest) (*operatorv1.ObjectsReply, error) {
	reply := &operatorv1.ObjectsReply{}
	for range 600 {
		reply.Objects = append(reply.Objects, &operatorv1.Object{
			Ref:     "vpp.route/x",
			Phase:   "InSync",
			Desired: []byte(`{"a":1}`),
		})
	}
	return reply, nil
}

func (agent) Counters(context.Context, *operatorv1.CountersRequest) (*operatorv1.CountersReply, error) {
	return nil, status.Error(codes.FailedPrecondition, "the dataplane is not connected")
}

func (a agent) Events(r *operatorv1.EventsRequest, s grpc.ServerStreamingServer[operatorv1.EventRecord]) error {
	if err := s.Send(&operatorv1.EventRecord{Seq: 1, Event: "add pod " + hostile + "\n\ndata: forged"}); err != nil ||
		!r.Follow {
		return err
	}
	a.following <- struct{}{}
	<-s.Context().Done()
	return nil
}

func get(t *testing.T, path string) (*httptest.ResponseRecorder, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(&API{Operations: agent{}}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	var doc map[string]any
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return w, doc
}

func TestAllRepliesHaveThePolicyAndOnlyGETIsAllowed(t *testing.T) {
	for _, path := range []string{"/", "/app.js", "/style.css", "/api/state", "/api/missing", "/missing"} {
		w, _ := get(t, path)
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", path, w.Header())
		}
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"} {
			w := httptest.NewRecorder()
			Handler(&API{Operations: agent{}}).ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
}

// The page parses no strings as markup and refers to no other origin.
func TestPageHasNoInlineCodeAndNoOtherOrigin(t *testing.T) {
	forbidden := regexp.MustCompile(
		`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\sstyle="|\son[a-z]+="|<script>|https?://`)
	allowed := strings.NewReplacer("http://www.w3.org/2000/svg", "")
	files, err := page.ReadDir("page")
	if err != nil || len(files) < 10 {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		text, err := page.ReadFile("page/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if found := forbidden.FindString(allowed.Replace(string(text))); found != "" {
			t.Errorf("%s contains %q", f.Name(), found)
		}
	}
}

func TestAddressesNameTheirOwner(t *testing.T) {
	_, doc := get(t, "/api/addresses")
	leases := doc["leases"].([]any)
	first := leases[0].(map[string]any)
	second := leases[1].(map[string]any)
	third := leases[2].(map[string]any)
	if first["pod"] != "shop/"+hostile || first["offset"] != 2.0 {
		t.Errorf("lease %v", first)
	}
	if second["pod"] != nil || second["offset"] != 256.0 {
		t.Errorf("cooling lease %v", second)
	}
	if third["pod"] != nil {
		t.Errorf("the address of another network has the owner %v", third["pod"])
	}
}

// bare is an agent without objects.
type bare struct{ agent }

func (bare) Objects(context.Context, *operatorv1.ObjectsRequest) (*operatorv1.ObjectsReply, error) {
	return &operatorv1.ObjectsReply{}, nil
}

func TestTopologyWithoutNetworksHasEmptyLists(t *testing.T) {
	w := httptest.NewRecorder()
	Handler(&API{Operations: bare{}}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/topology", nil))
	var doc map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"networks", "links"} {
		if list, ok := doc[name].([]any); !ok || len(list) != 0 {
			t.Errorf("%s: %v", name, doc[name])
		}
	}
}

// leftBehind is an agent with a tunnel that is applied although it is not desired any more.
type leftBehind struct{ agent }

func (leftBehind) Objects(_ context.Context, r *operatorv1.ObjectsRequest) (*operatorv1.ObjectsReply, error) {
	reply := &operatorv1.ObjectsReply{}
	if r.Prefix == "vpp.interface/" {
		reply.Objects = []*operatorv1.Object{
			{Ref: "vpp.interface/host", Phase: "InSync", Desired: []byte(`{"type":"tap"}`), Applied: []byte(`{}`)},
			{Ref: "vpp.interface/old", Phase: "Removing", Applied: []byte(`{"type":"vxlan"}`)},
		}
	}
	return reply, nil
}

func TestTopologyShowsLinksThatAreLeftBehind(t *testing.T) {
	w := httptest.NewRecorder()
	Handler(&API{Operations: leftBehind{}}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/topology", nil))
	var doc struct {
		Links []struct {
			Name  string
			Value struct{ Type string }
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Links) != 2 || doc.Links[0].Value.Type != "tap" || doc.Links[1].Name != "old" ||
		doc.Links[1].Value.Type != "vxlan" {
		t.Errorf("links %+v", doc.Links)
	}
}

// merging is an agent whose event 4 has a transaction of its own and one that event 3 caused.
type merging struct{ agent }

func (merging) Events(_ *operatorv1.EventsRequest, s grpc.ServerStreamingServer[operatorv1.EventRecord]) error {
	return s.Send(&operatorv1.EventRecord{Seq: 4, Transactions: []uint64{9, 10}, SharedWith: []uint64{3}})
}

func (merging) Transactions(
	context.Context, *operatorv1.TransactionsRequest,
) (*operatorv1.TransactionsReply, error) {
	return &operatorv1.TransactionsReply{Transactions: []*operatorv1.TransactionRecord{
		{Seq: 8, Event: 2, Label: "of another event"}, {Seq: 9, Event: 3, Label: "shared"},
		{Seq: 10, Event: 4, Label: "own"},
	}}, nil
}

func TestAnEventHasTheTransactionsThatItShares(t *testing.T) {
	w := httptest.NewRecorder()
	Handler(&API{Operations: merging{}}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/event?seq=4", nil))
	var doc struct{ Transactions []struct{ Label string } }
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Transactions) != 2 || doc.Transactions[0].Label != "shared" || doc.Transactions[1].Label != "own" {
		t.Errorf("transactions %+v", doc.Transactions)
	}
}

func TestListsOfObjectsAreBoundedAndWithoutValues(t *testing.T) {
	_, doc := get(t, "/api/objects?q=ROUTE")
	rows := doc["objects"].([]any)
	if len(rows) != maxObjects || doc["total"] != 600.0 || rows[0].(map[string]any)["desired"] != nil {
		t.Errorf("%d rows of %v", len(rows), doc["total"])
	}
	if _, doc := get(t, "/api/objects?q=nothing"); doc["total"] != 0.0 {
		t.Errorf("total %v", doc["total"])
	}
}

// owning is an agent with the pods shop/cart and shop/web. Each has an object; that of shop/cart failed.
type owning struct{ agent }

func (owning) Attachments(_ context.Context, r *operatorv1.AttachmentsRequest) (*operatorv1.AttachmentsReply, error) {
	reply := &operatorv1.AttachmentsReply{}
	if r.Pod == "shop/cart" {
		reply.Attachments = []*operatorv1.AttachmentInfo{{Pod: &weftv1.Pod{Namespace: "shop", Name: "cart"}}}
	}
	return reply, nil
}

func (owning) Objects(_ context.Context, r *operatorv1.ObjectsRequest) (*operatorv1.ObjectsReply, error) {
	reply := &operatorv1.ObjectsReply{}
	for name, phase := range map[string]string{"cart": "Failed", "web": "InSync"} {
		if r.Pod == "" || r.Pod == "shop/"+name {
			owner := &operatorv1.ObjectOwner{Pod: &weftv1.Pod{Namespace: "shop", Name: name}, Interface: "eth0"}
			reply.Objects = append(reply.Objects, &operatorv1.Object{
				Ref:     "linux.veth/of-" + name,
				Phase:   phase,
				Desired: []byte(`{"a":1}`),
				Owners:  []*operatorv1.ObjectOwner{owner},
			})
		}
	}
	return reply, nil
}

func (owning) Events(r *operatorv1.EventsRequest, s grpc.ServerStreamingServer[operatorv1.EventRecord]) error {
	if r.Pod == "shop/nothing" {
		return nil
	}
	return s.Send(&operatorv1.EventRecord{Seq: 4, Event: "add pod " + r.Pod})
}

func TestAPodHasItsObjectsAndEvents(t *testing.T) {
	read := func(path string) (int, map[string]any) {
		w := httptest.NewRecorder()
		Handler(&API{Operations: owning{}}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		var doc map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		return w.Code, doc
	}
	code, doc := read("/api/pod?name=shop/cart")
	unsettled := doc["notInSync"].([]any)
	if code != http.StatusOK || len(doc["attachments"].([]any)) != 1 || len(unsettled) != 1 ||
		len(doc["phases"].(map[string]any)) != 1 {
		t.Fatalf("%d %v", code, doc)
	}
	if o := unsettled[0].(map[string]any); o["ref"] != "linux.veth/of-cart" || o["desired"] != nil {
		t.Errorf("object %v", o)
	}
	if e := doc["events"].([]any)[0].(map[string]any); e["event"] != "add pod shop/cart" {
		t.Errorf("event %v", e)
	}
	for path, want := range map[string]int{
		"/api/pod":                   400,
		"/api/pod?name=shop/nothing": 404,
		"/api/pod?name=shop/web":     200,
	} {
		if code, doc := read(path); code != want {
			t.Errorf("%s: %d %v", path, code, doc)
		}
	}
	for query, want := range map[string]float64{
		"q=shop/cart:":  1,
		"q=SHOP/":       2,
		"q=of-web":      1,
		"pod=shop/cart": 1,
		"q=nothing":     0,
	} {
		if _, doc := read("/api/objects?" + query); doc["total"] != want {
			t.Errorf("%s: %v objects", query, doc["total"])
		}
	}
}

func TestErrorsAreOneSentenceWithAStatus(t *testing.T) {
	for path, want := range map[string]int{
		"/api/counters": 503, "/api/event?seq=x": 400, "/api/event?seq=-1": 400, "/api/event?seq=9": 404,
		"/api/object?ref=no": 404, "/api/events?last=1e9": 400,
	} {
		if w, doc := get(t, path); w.Code != want || doc["error"] == "" {
			t.Errorf("%s: %d %v", path, w.Code, doc)
		}
	}
}

// serveAt runs a server on a unix socket until the context ends.
func serveAt(ctx context.Context, t *testing.T, a agent) (client *http.Client, ended chan error) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "ui.sock")
	s := &Server{
		Socket:  socket,
		Handler: Handler(&API{Operations: a, Stopping: ctx.Done()}),
		Log:     slog.New(slog.DiscardHandler),
	}
	ended = make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	deadline := time.Now().Add(10 * time.Second)
	for {
		if info, err := os.Stat(socket); err == nil {
			if info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v", info.Mode())
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no socket")
		}
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, ended
}

func TestStreamEndsWhenTheAgentStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a := agent{following: make(chan struct{}, 1)}
	client, ended := serveAt(ctx, t, a)
	reply, err := client.Get("http://localhost/api/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	lines := bufio.NewScanner(reply.Body)
	var data []string
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			data = append(data, lines.Text())
			<-a.following
			stop()
		}
	}
	if len(data) != 1 || strings.Contains(data[0], "<img") {
		t.Errorf("data %q", data)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the server did not end")
	}
}

// goleak shows whether the stream's goroutines end.
func TestStreamEndsWhenTheClientLeaves(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	a := agent{following: make(chan struct{}, 1)}
	client, ended := serveAt(ctx, t, a)
	request, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(request, http.MethodGet, "http://localhost/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	<-a.following
	cancel()
	_, _ = io.Copy(io.Discard, reply.Body)
	_ = reply.Body.Close()
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// pipeListener accepts one connection without a network.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func TestReplyEndsAlthoughItsClientDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &pipeListener{conns: make(chan net.Conn, 1), done: make(chan struct{})}
		replied := make(chan error, 1)
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 1<<20))
			replied <- err
		})
		served := make(chan error, 1)
		s := &Server{Log: slog.New(slog.DiscardHandler)}
		go func() { served <- s.serve(ctx, l, handler) }()
		client, server := net.Pipe()
		defer client.Close()
		l.conns <- server
		began := time.Now()
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: page\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-replied; err == nil || time.Since(began) > replyTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		cancel()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v", err)
		}
	})
}

// Scripts and styles are read by people, as Go is: prettier --print-width 120 --single-quote formats them.
func TestSourcesOfThePageHaveNoLongLines(t *testing.T) {
	sources, err := page.ReadDir("page")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, source := range sources {
		content, err := page.ReadFile("page/" + source.Name())
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(source.Name()) == ".svg" {
			continue
		}
		checked++
		for n, line := range strings.Split(string(content), "\n") {
			if length := utf8.RuneCountInString(line); length > 120 {
				t.Errorf("page/%s:%d has %d columns, more than 120", source.Name(), n+1, length)
			}
		}
	}
	if checked < 10 {
		t.Errorf("%d sources are checked", checked)
	}
}
