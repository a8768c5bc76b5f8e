package planning

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
	"github.com/weftnet/weft/pod"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server returns a server whose pod shop/web has the route fine; down is why the dataplane is not connected.
func server(t *testing.T, down error) *Server {
	t.Helper()
	s, vrfs, routes := kvschedulertest.Markers(t)
	set := []kvscheduler.Object{vrfs.Put("a", ""), routes.Put("fine", "a"), routes.Put("far", "c")}
	if _, err := s.Commit(t.Context(), kvscheduler.Txn{Source: "weft", Set: set}); err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Scheduler:   s,
		Attachments: func() []pod.Attachment { return []pod.Attachment{{Pod: pod.ID{Namespace: "shop", Name: "web"}}} },
		Objects:     func(*pod.Attachment) []string { return []string{"vpp.route/fine"} },
		Down:        func() error { return down },
	})
}

func TestSelectorIsAKeyAPrefixOrAPod(t *testing.T) {
	s := server(t, nil)
	for selector, want := range map[string]string{
		"vpp.route/f":    "[vpp.route/far vpp.route/fine]",
		"vpp.route/fine": "[vpp.route/fine]",
		"vpp.":           "[vpp.route/far vpp.route/fine vpp.vrf/a]",
		"shop/web":       "[vpp.route/fine]",
	} {
		refs, err := s.graph.selected(selector)
		if err != nil || fmt.Sprint(refs) != want {
			t.Errorf("%s: %v, %v", selector, refs, err)
		}
	}
	for selector, text := range map[string]string{
		"shop/nothing": "nor a pod that is attached on this node", "vpp.route/none": "no objects with prefix",
		"x": "no objects with prefix", "/": "nor a pod",
	} {
		_, err := s.graph.selected(selector)
		if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", selector, err)
		}
	}
}

func TestDiffListsObjectsWithADifference(t *testing.T) {
	reply, err := server(t, nil).Diff(t.Context(), &operatorv1.DiffRequest{})
	if err != nil || len(reply.Objects) != 1 || reply.Compared != 3 || len(reply.Unread) > 0 {
		t.Fatal(reply, err)
	}
	o := reply.Objects[0]
	if o.Ref != "vpp.route/far" || o.Reason != "not applied" || o.Phase != "Pending" || !o.Unread ||
		len(o.Fields) != 1 ||
		o.Fields[0].Desired != present {
		t.Errorf("got %v", o)
	}
	reply, err = server(t, errors.New("lost")).Diff(t.Context(), &operatorv1.DiffRequest{Selector: "shop/web"})
	if err != nil || reply.Compared != 1 || len(reply.Unread) != 1 ||
		!strings.Contains(reply.Unread[0], "not connected (lost)") {
		t.Error(reply, err)
	}
}

func TestFieldsAreThoseThatDiffer(t *testing.T) {
	type value struct {
		MTU   int
		Names []string
		Inner map[string]any
	}
	full := value{1500, []string{"a", "b"}, map[string]any{"x": 1, "none": nil}}
	other := value{9000, []string{"a"}, map[string]any{"x": 1}}
	for _, tc := range []struct {
		name     string
		values   [sides]any
		isUnread bool
		want     string
	}{
		{"equal", [sides]any{full, full, full}, false, ""},
		{"absent everywhere", [sides]any{}, false, ""},
		{"changed on the machine", [sides]any{full, full, other}, false, `MTU|1500|1500|9000;Names[1]|"b"|"b"|;`},
		{"not read", [sides]any{full, full, nil}, true, ""},
		{"missing", [sides]any{full, full, nil}, false, "|present|present|;"},
		{"not applied yet", [sides]any{other, full, full}, false, `MTU|9000|1500|1500;Names[1]||"b"|"b";`},
		{
			"missing, and changed", [sides]any{other, full, nil}, false,
			`|present|present|;MTU|9000|1500|;Names[1]||"b"|;`,
		},
		{"a plain value", [sides]any{"a", "b", "b"}, false, `value|"a"|"b"|"b";`},
		{"a value without JSON", [sides]any{func() {}, nil, nil}, true, "|present||;"},
	} {
		got := ""
		for _, f := range fieldsOf(tc.values, tc.isUnread) {
			got += fmt.Sprintf("%s|%s|%s|%s;", f.Path, f.Desired, f.Applied, f.Machine)
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestGraphShowsPhasesAndUnmetDependencies(t *testing.T) {
	s := server(t, errors.New("lost"))
	reply, err := s.Graph(t.Context(), &operatorv1.GraphRequest{Selector: "vpp.route/", Depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, n := range reply.Nodes {
		got += fmt.Sprintf("%s %s %t;", n.Ref, n.Phase, n.Selected)
	}
	for _, e := range reply.Edges {
		got += fmt.Sprintf("%s-%s %t;", e.From, e.To, e.Met)
	}
	want := "vpp.route/far Pending true;vpp.route/fine Unknown true;vpp.vrf/a Unknown false;vpp.vrf/c  false;" +
		"vpp.route/far-vpp.vrf/c false;vpp.route/fine-vpp.vrf/a true;"
	if got != want {
		t.Errorf("got %q", got)
	}
	for _, req := range []*operatorv1.GraphRequest{{}, {Selector: "vpp.", Depth: maxDepth + 1}} {
		if _, err := s.Graph(t.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", req, err)
		}
	}
}
