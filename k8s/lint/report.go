// Package lint validates Weft's annotations, custom resources and network configurations in manifests, without a
// cluster.
package lint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// object is an object of a document.
type object struct {
	report   *Report
	file     string
	document *yamltext.Document
	repeated []yamltext.Problem // of the document
	at       yamltext.Path      // in the document, if the object is an item of a list
	fields   map[string]any
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

// reportRepeated reports repeated keys of the object.
func (o *object) reportRepeated() {
	for _, p := range o.repeated {
		if len(p.Path) < len(o.at) || !slices.Equal(p.Path[:len(o.at)], o.at) {
			continue
		}
		f := o.fault(p.Path[len(o.at):], p.Reason)
		f.Line = p.Line
		o.report.Faults = append(o.report.Faults, f)
	}
}

func (o *object) text(path ...string) string {
	text, _, _ := unstructured.NestedString(o.fields, path...)
	return text
}

// group returns the API group and the kind.
func (o *object) group() string {
	group, _, versioned := strings.Cut(o.text("apiVersion"), "/")
	if !versioned {
		return o.text("kind")
	}
	return group + "/" + o.text("kind")
}

func (o *object) name() string { return o.text("metadata", "name") }

func (o *object) namespace() string { return cmp.Or(o.text("metadata", "namespace"), "default") }

// annotations returns the annotations that are texts.
func (o *object) annotations() map[string]string {
	return textsOf(o.fields, "metadata", "annotations")
}

// textsOf returns the texts of a map of texts; the API server rejects other values.
func textsOf(fields map[string]any, path ...string) map[string]string {
	m, _, _ := unstructured.NestedMap(fields, path...)
	texts := make(map[string]string)
	for k, v := range m {
		if text, is := v.(string); is {
			texts[k] = text
		}
	}
	return texts
}

// say reports a problem of a field.
func (o *object) say(path yamltext.Path, err error) {
	f := o.fault(path, err.Error())
	if coded := (*pod.Error)(nil); errors.As(err, &coded) {
		f.Code = coded.Code
	}
	o.report.Faults = append(o.report.Faults, f)
}

// note reports a fact that the files alone do not show.
func (o *object) note(path yamltext.Path, format string, args ...any) {
	o.report.Notes = append(o.report.Notes, o.fault(path, fmt.Sprintf(format, args...)))
}

func (o *object) fault(path yamltext.Path, reason string) Fault {
	name := cmp.Or(o.name(), o.text("metadata", "generateName"))
	if namespace := o.text("metadata", "namespace"); namespace != "" {
		name = namespace + "/" + name
	}
	in := o.at
	for _, step := range path {
		in = in.With(step)
	}
	return Fault{
		File:   o.file,
		Line:   o.document.Line(in),
		Object: strings.TrimSpace(o.text("kind") + " " + name),
		Path:   path.String(),
		Reason: reason,
	}
}
