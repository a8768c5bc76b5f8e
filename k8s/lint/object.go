package lint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftnet/weft/internal/yamltext"
	"github.com/weftnet/weft/pod"
)

// object is an object of a document.
type object struct {
	report   *Report
	file     string
	document *yamltext.Document
	repeated []yamltext.Problem // of the document
	at       yamltext.Path      // in the document, if the object is an item of a list
	fields   map[string]any
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

// isOfKubeVirt reports a kind of KubeVirt, which copies labels and annotations of a virtual machine to its pod.
func (o *object) isOfKubeVirt() bool {
	group, _, _ := strings.Cut(o.text("apiVersion"), "/")
	return group == "kubevirt.io" || strings.HasSuffix(group, ".kubevirt.io")
}

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

// list visits the maps of a list in the object.
func (o *object) list(path yamltext.Path, visit func(at yamltext.Path, item map[string]any)) {
	var list any = o.fields
	for _, step := range path {
		switch in := list.(type) {
		case map[string]any:
			list = in[fmt.Sprint(step)]
		case []any:
			at, is := step.(int)
			if !is || at >= len(in) {
				return // the schema has another type there
			}
			list = in[at]
		default:
			return
		}
	}
	items, _ := list.([]any)
	for i, item := range items {
		if fields, is := item.(map[string]any); is {
			visit(path.With(i), fields)
		}
	}
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

// clusterScoped reports a namespace, which the API server removes or refuses.
func (o *object) clusterScoped() {
	if o.text("metadata", "namespace") != "" {
		o.say(yamltext.Path{"metadata", "namespace"},
			fmt.Errorf("objects of the kind %s belong to the cluster: remove the namespace", o.text("kind")))
	}
}

// selector reports an invalid selector with the error of the agent.
func (o *object) selector(field string, s *metav1.LabelSelector) {
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		o.say(spec(field), fmt.Errorf("%s: %w", field, err))
	}
}
