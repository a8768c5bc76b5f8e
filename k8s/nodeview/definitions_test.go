package nodeview_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

func (l *lab) definition(namespace, name, config string) {
	l.Put(nads, &npwg.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: npwg.NetworkAttachmentDefinitionSpec{Config: config},
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
	if code == 0 && err == nil || errors.As(err, &coded) && coded.Code == code && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "\n") {
		return
	}
	t.Errorf("got %v, want code %d with %q in one line", err, code, want)
}
