package pod

import (
	"reflect"
	"slices"
	"strings"
)

// ChangePod gives a connected pod the extra interfaces that its annotations request now, after they were edited: it
// adds and removes interfaces, all or nothing. The main interface, interfaces of claims, and interfaces with the same
// request stay as they are.
type ChangePod struct {
	Request
	Attempt

	// Attachment and Changes are set by the first handler. The others complete the attachment.
	Attachment *Attachment
	Changes    Changes
}

// Pod returns "": in contrast to an ADD, a change does not cancel the events of other sandboxes of the pod.
func (e *ChangePod) Pod() string { return "" }

// Changes are what a pod requests otherwise than before.
type Changes struct {
	Made    []InterfaceRequest // in the order of the requests; some of them replace an interface
	Removed []string           // the interfaces that the pod does not request any more
}

// IsZero reports whether the pod requests the interfaces that it has.
func (c Changes) IsZero() bool { return len(c.Made) == 0 && len(c.Removed) == 0 }

// Ends reports whether an interface is removed or replaced.
func (c Changes) Ends(name string) bool {
	return slices.Contains(c.Removed, name) || c.makes(name)
}

func (c Changes) makes(name string) bool {
	return slices.ContainsFunc(c.Made, func(r InterfaceRequest) bool { return r.Name == name })
}

// String lists the changes for people: "made: t2 on network blue; removed: t1".
func (c Changes) String() string {
	var parts []string
	if len(c.Made) > 0 {
		var made []string
		for _, r := range c.Made {
			made = append(made, r.Name+" on network "+r.Network)
		}
		parts = append(parts, "made: "+strings.Join(made, ", "))
	}
	if len(c.Removed) > 0 {
		parts = append(parts, "removed: "+strings.Join(c.Removed, ", "))
	}
	return strings.Join(parts, "; ")
}

// editable are the annotations whose edit changes the interfaces of a running pod.
var editable = []string{AnnotationCustom, AnnotationOptions, AnnotationNetworks}

// IsEditable reports whether an edit of the annotation changes the interfaces of a running pod.
func IsEditable(annotation string) bool { return slices.Contains(editable, annotation) }

// IsEdited reports whether annotations request other extra interfaces than at the attachment's ADD, or at its last
// change.
func (a *Attachment) IsEdited(annotations map[string]string) bool {
	return slices.ContainsFunc(editable, func(name string) bool { return a.Annotations[name] != annotations[name] })
}

// Edited returns the annotations of an attachment after its interfaces were changed. The other annotations take effect
// at ADD only.
func (a *Attachment) Edited(annotations map[string]string) map[string]string {
	edited := make(map[string]string)
	for name, value := range a.Annotations {
		if !IsEditable(name) {
			edited[name] = value
		}
	}
	for _, name := range editable {
		if value, has := annotations[name]; has {
			edited[name] = value
		}
	}
	return edited
}

// ChangesOf compares the interfaces of an attachment with what its pod requests now. Its errors have code 103.
func ChangesOf(a *Attachment, now *Request) (Changes, error) {
	requests, err := now.Extra()
	if err != nil {
		return Changes{}, err
	}
	edit := newEdit(a, now)
	var c Changes
	for _, r := range requests {
		if r.Claim != "" {
			continue // the claims of a pod never change
		}
		has := a.named(r.Name)
		switch {
		case has == nil:
			c.Made = append(c.Made, r)
		case has.Name == a.Key.IfName || has.Definition != r.Definition:
			return Changes{}, Errorf(CodeInvalidAnnotation,
				"%s: interface %s is another interface of the pod; choose another name", r.Source(), r.Name)
		case !edit.isSame(has, r):
			c.Made = append(c.Made, r)
		default:
			edit.kept = append(edit.kept, r)
		}
	}
	for _, i := range a.Interfaces {
		isWanted := slices.ContainsFunc(requests, func(r InterfaceRequest) bool { return r.Name == i.Name })
		if !isWanted && edit.isWithdrawn(i) {
			c.Removed = append(c.Removed, i.Name)
		}
	}
	if n := countAfter(a, c); n > MaxCustomInterfaces {
		return Changes{}, Errorf(CodeInvalidAnnotation, "the pod would have %d interfaces, at most %d are possible", n,
			MaxCustomInterfaces)
	}
	return c, edit.check(a, c)
}

// countAfter counts the extra interfaces of an attachment after changes.
func countAfter(a *Attachment, c Changes) int {
	n := len(c.Made)
	for _, i := range a.Interfaces {
		if i.Name != a.Key.IfName && !c.Ends(i.Name) {
			n++
		}
	}
	return n
}

// named returns an interface of an attachment; nil if it has none of this name.
func (a *Attachment) named(name string) *Interface {
	at := slices.IndexFunc(a.Interfaces, func(i Interface) bool { return i.Name == name })
	if at < 0 {
		return nil
	}
	return &a.Interfaces[at]
}

// edit compares the requests of the annotations before and after an edit, by the names of the interfaces. The
// annotations of an attachment are not known if the agent lost its state: then it has no requests.
type edit struct {
	before        map[string]InterfaceRequest
	selectedFirst map[string]Selection
	selected      map[string]Selection
	isSelection   bool // the selection of NetworkAttachmentDefinitions was edited
	kept          []InterfaceRequest
}

// newEdit parses the annotations. An error in those of before means that their interfaces are not known.
func newEdit(a *Attachment, now *Request) *edit {
	e := &edit{
		before:        make(map[string]InterfaceRequest),
		selectedFirst: selectionsOf(a.Annotations, a.Pod.Namespace),
		selected:      selectionsOf(now.Annotations, a.Pod.Namespace),
		isSelection:   a.Annotations[AnnotationNetworks] != now.Annotations[AnnotationNetworks],
	}
	requests, err := InterfaceRequests(a.Annotations, a.Key.IfName)
	if err != nil {
		return e
	}
	for _, r := range requests {
		if err := r.nameClaim(now.ID); err == nil {
			e.before[r.Name] = r
		}
	}
	return e
}

func selectionsOf(annotations map[string]string, namespace string) map[string]Selection {
	byName := make(map[string]Selection)
	selections, err := Selections(annotations, namespace)
	if err != nil {
		return byName
	}
	for _, s := range selections {
		byName[s.Interface] = s
	}
	return byName
}

// isSame reports whether an interface is as requested. What a NetworkAttachmentDefinition says now does not matter: the
// interface is made from what it said at the ADD.
func (e *edit) isSame(i *Interface, r InterfaceRequest) bool {
	if i.Definition != "" {
		first, known := e.selectedFirst[r.Name]
		return !e.isSelection || !known || reflect.DeepEqual(first, e.selected[r.Name])
	}
	if first, known := e.before[r.Name]; known {
		return reflect.DeepEqual(first, r)
	}
	return i.Type == r.Type && (i.Network == r.Network || i.Network == "" && r.Network == DefaultNetwork)
}

// isWithdrawn reports whether annotations requested an interface, which they do not request any more.
func (e *edit) isWithdrawn(i Interface) bool {
	if i.Definition != "" {
		_, was := e.selectedFirst[i.Name]
		_, is := e.selected[i.Name]
		return e.isSelection && was && !is
	}
	_, was := e.before[i.Name]
	return was
}

// check rejects changes that would change other interfaces too, or what only the creation of a pod can set.
func (e *edit) check(a *Attachment, c Changes) error {
	for _, r := range c.Made {
		if r.Options.DNS {
			return Errorf(CodeInvalidAnnotation,
				"%s: interface %s: dns takes effect only when a pod is created", r.OptionsSource(), r.Name)
		}
	}
	for _, r := range e.kept {
		for _, route := range r.Options.Routes {
			if c.Ends(route.Interface) {
				return Errorf(CodeInvalidAnnotation,
					"%s: interface %s: route %s leads through interface %s, which the edit changes; remove the route first",
					r.OptionsSource(), r.Name, route, route.Interface)
			}
		}
	}
	for _, i := range a.Interfaces {
		if !c.Ends(i.Name) {
			continue
		}
		if i.hasDefaultRoute() {
			return Errorf(CodeInvalidAnnotation,
				"interface %s has the default route of the pod, which is chosen when a pod is created; create the pod again",
				i.Name)
		}
		for _, route := range e.before[i.Name].Options.Routes {
			if route.Interface != "" && !c.Ends(route.Interface) {
				return Errorf(CodeInvalidAnnotation,
					"interface %s: its route %s leads through interface %s, which the edit does not change; "+
						"create the pod again", i.Name, route, route.Interface)
			}
		}
	}
	return nil
}

// hasDefaultRoute reports whether the kernel of the pod has its default route through the interface.
func (i *Interface) hasDefaultRoute() bool {
	isDefault := func(r Route) bool { return r.Destination.Bits() == 0 && r.Metric == 0 }
	return i.Memif == nil && slices.ContainsFunc(i.Routes, isDefault)
}
