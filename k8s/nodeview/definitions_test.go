package nodeview_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

func (l *lab) definition(namespace, name, config string) {
	l.Put(nads, &npwg.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       npwg.NetworkAttachmentDefinitionSpec{Config: config},
	})
}

func definitionOf(name string) pod.Selection { return pod.Selection{Namespace: "shop", Name: name} }

func TestADefinitionThatTheWatchHasShownCostsNoRequest(t *testing.T) {
	l := newLab(t)
	l.definition("shop", "blue", "{}")
	c := l.Known(nil)
	l.Eventually("the definition is known", func() bool { return len(c.View().Definitions) == 1 })
	before := len(l.Requests())
	if d, err := c.Definition(t.Context(), definitionOf("blue")); err != nil || d.Config != "{}" {
		t.Errorf("got %+v, %v", d, err)
	}
	if len(l.Requests()) != before {
		t.Error("the API server was asked")
	}
}

func TestAnUnknownDefinitionCostsOneRequest(t *testing.T) {
	l := newLab(t)
	c, err := nodeview.New(nodeview.Config{
		Node: "n1", Client: l.Client(), Question: 5 * time.Second, // nothing is watched
		Known: &nodeview.View{Definitions: map[string]nodeview.Definition{"shop/old": {Config: "[]"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.definition("shop", "blue", "{}")
	for _, tt := range []struct {
		name, config string
		requests     int
		code         uint
		want         string
	}{
		{"blue", "{}", 1, 0, ""},
		{"old", "[]", 0, 0, ""}, // of an earlier run
		{"none", "", 1, pod.CodeUnknownNetwork, "there is no NetworkAttachmentDefinition shop/none"},
	} {
		before := len(l.Requests())
		d, err := c.Definition(t.Context(), definitionOf(tt.name))
		if asked := len(l.Requests()) - before; asked != tt.requests {
			t.Errorf("%s: %d requests, want %d", tt.name, asked, tt.requests)
		}
		isCoded(t, err, tt.code, tt.want)
		if d.Config != tt.config {
			t.Errorf("%s: got %+v", tt.name, d)
		}
	}
	l.Fail(func(*http.Request) int { return http.StatusInternalServerError })
	_, err = c.Definition(t.Context(), definitionOf("blue"))
	isCoded(t, err, pod.CodeTryAgain, "NetworkAttachmentDefinition shop/blue: no answer of the API server")
}

// isCoded expects an error with a code and a text; code 0: no error.
func isCoded(t *testing.T, err error, code uint, want string) {
	t.Helper()
	var coded *pod.Error
	if code == 0 && err == nil ||
		errors.As(err, &coded) && coded.Code == code && strings.Contains(err.Error(), want) &&
			!strings.Contains(err.Error(), "\n") {
		return
	}
	t.Errorf("got %v, want code %d with %q in one line", err, code, want)
}

// The definition of the kind may accept any spec: that of Multus before 4 had no schema. One definition that cannot be
// read, which the users of one namespace may write, hides no other one.
func TestUnreadableDefinitionHidesNoOther(t *testing.T) {
	for _, spec := range []string{
		`{"config": 7}`, `{"config": {"type": "weft-cni"}}`, `"x"`, `[]`, `{"config": ["{}"]}`,
	} {
		t.Run(spec, func(t *testing.T) {
			l := newLab(t)
			l.unreadable(t, "attacker", spec)
			l.definition("shop", "blue", "{}")
			c := l.Known(nil)
			l.Eventually("the definitions are known", func() bool { return len(c.View().Definitions) == 2 })
			l.definition("shop", "red", "{}")
			l.Eventually("a later definition is known", func() bool {
				return c.View().Definitions["shop/red"].Config == "{}"
			})
			l.unreadable(t, "later", spec)
			l.Eventually("a later unreadable one is known", func() bool { return len(c.View().Definitions) == 4 })
			if d, err := c.Definition(t.Context(), definitionOf("blue")); err != nil || d.Config != "{}" {
				t.Errorf("got %+v, %v", d, err)
			}
			_, err := c.Definition(t.Context(), pod.Selection{Namespace: "evil", Name: "attacker"})
			isCoded(t, err, pod.CodeInvalidConfig, "NetworkAttachmentDefinition evil/attacker: ")
			if err := c.Failure(); err != nil {
				t.Errorf("the view may be outdated: %v", err)
			}
		})
	}
}

// Tenants write definitions of up to 1.5 MiB, and each agent has those of all namespaces.
func TestLongDefinitionsAreNotKept(t *testing.T) {
	l := newLab(t)
	config := func(size int) string { return `{"type":"` + strings.Repeat("x", size-len(`{"type":""}`)) + `"}` }
	l.Put(nads, &npwg.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "evil",
			Name:        "long",
			Annotations: map[string]string{"a": config(100 << 10)},
		},
		Spec: npwg.NetworkAttachmentDefinitionSpec{Config: config(pod.MaxDefinition + 1)},
	})
	l.definition("shop", "longest", config(pod.MaxDefinition))
	l.unreadable(t, "quoting", `{"config": ["`+strings.Repeat("x", 100<<10)+`"]}`)
	c := l.Known(nil)
	l.Eventually("the definitions are known", func() bool { return len(c.View().Definitions) == 3 })
	all := c.View().Definitions
	if d := all["shop/longest"]; len(d.Config) != pod.MaxDefinition || d.Unreadable != "" {
		t.Errorf("%d bytes are kept, %q", len(d.Config), d.Unreadable)
	}
	for _, name := range []string{"evil/long", "evil/quoting"} {
		if d := all[name]; d.Config != "" || d.Unreadable == "" || len(d.Unreadable) > 300 {
			t.Errorf("%s: %d and %d bytes are kept", name, len(d.Config), len(d.Unreadable))
		}
	}
	_, err := c.Definition(t.Context(), pod.Selection{Namespace: "evil", Name: "long"})
	isCoded(t, err, pod.CodeInvalidConfig, "16385 bytes, at most 16384 are read")
}

// unreadable writes a NetworkAttachmentDefinition with a spec that may have any type.
func (l *lab) unreadable(t *testing.T, name, spec string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	text := `{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "spec": ` + spec + `}`
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetNamespace("evil")
	o.SetName(name)
	l.Put(nads, o)
}
