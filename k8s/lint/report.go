// Package lint validates Weft's annotations, custom resources and network configurations in manifests, without a
// cluster.
package lint

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/weftnet/weft/internal/yamltext"
	"github.com/weftnet/weft/pod"
)

// Fault is a problem in a file.
type Fault struct {
	File   string `json:"file"`
	Line   int    `json:"line"`   // of the field
	Object string `json:"object"` // kind and name
	Path   string `json:"path"`   // of the field; "": the whole object
	Reason string `json:"reason"`
	// of the CNI error with which the pod's ADD would fail; 0: another program reports the problem
	Code uint `json:"code,omitempty"`
}

// String returns one line.
func (f Fault) String() string {
	reason := f.Reason
	if f.Code != 0 {
		reason += fmt.Sprintf(" (code %d)", f.Code)
	}
	texts := []string{fmt.Sprintf("%s:%d", f.File, f.Line), f.Object, f.Path, reason}
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), ": ")
}

// Report is the problems in the files that it has read. Read all files, then call [Report.Finish].
type Report struct {
	Mode    string  `json:"-"`       // of Weft in the cluster, one of Modes; "" is primary. Set it before Read
	Pods    int     `json:"pods"`    // number of pods and templates of pods
	Objects int     `json:"objects"` // number of other validated objects
	Skipped int     `json:"skipped"` // number of objects of kinds without rules of Weft
	Faults  []Fault `json:"faults"`
	// Notes are facts that the files alone do not show, such as references to objects that are not in them.
	Notes []Fault `json:"notes"`

	found references
}

// Modes are the modes of Weft in a cluster; the default is the first. In the others another plugin creates the pods'
// main interfaces.
func Modes() []string { return []string{pod.ModePrimary, pod.ModeChained, pod.ModeDelegate} }

// Read reads the objects of a file of YAML documents or JSON. An error lists the documents that are neither; the others
// are validated.
func (r *Report) Read(name string, in io.Reader) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for _, d := range yamltext.Documents(text) {
		content, err := d.Decode()
		if wrong := (*yamltext.SyntaxError)(nil); errors.As(err, &wrong) {
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, wrong.Line, err))
			continue
		}
		o, is := content.(map[string]any)
		if !is {
			errs = append(errs,
				fmt.Errorf("%s:%d: expected an object of Kubernetes, not %s", name, d.Line(nil),
					yamltext.Describe(content)))
			continue
		}
		r.object(&object{report: r, file: name, document: &d, repeated: d.Repeated(), fields: o})
	}
	r.found.files = append(r.found.files, name)
	return errors.Join(errs...)
}

// object validates an object, or each object of a list.
func (r *Report) object(o *object) {
	items, isList := o.fields["items"].([]any)
	for i, item := range items {
		r.item(o, i, item)
	}
	p, isPod := o.pod()
	validate := kinds()[o.group()]
	switch {
	case isList:
	case o.refused():
		r.Objects++
	case isPod:
		r.Pods++
		p.validate()
	case validate != nil && validate(o):
		r.Objects++
	default:
		r.Skipped++
		return
	}
	o.reportRepeated()
}

// item validates an item of a list. As in kubectl, an item without kind has the kind of the list.
func (r *Report) item(list *object, i int, item any) {
	at := list.at.With("items").With(i)
	fields, is := item.(map[string]any)
	if !is {
		list.say(yamltext.Path{"items", i},
			fmt.Errorf("expected an object of Kubernetes, not %s", yamltext.Describe(item)))
		return
	}
	if kind, named := strings.CutSuffix(list.text("kind"), "List"); named && kind != "" && fields["kind"] == nil {
		fields = maps.Clone(fields)
		fields["apiVersion"] = list.text("apiVersion")
		fields["kind"] = kind
	}
	r.object(&object{
		report:   r,
		file:     list.file,
		document: list.document,
		repeated: list.repeated,
		at:       at,
		fields:   fields,
	})
}
