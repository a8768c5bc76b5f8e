package lint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weftnet/weft/internal/nearest"
	"github.com/weftnet/weft/internal/yamltext"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// written validates the fields of a kind that Weft itself writes, for example in a backup.
func written(kind string) func(*object) bool {
	return func(o *object) bool {
		schemas()[kind].validate(o)
		return true
	}
}

// ofGroup lists the kinds of Weft's API group.
func ofGroup() (names []string) {
	for kind := range kinds() {
		if name, is := strings.CutPrefix(kind, v1.Group+"/"); is {
			names = append(names, name)
		}
	}
	return slices.Sorted(slices.Values(names))
}

// refused reports an object that the API server refuses because Weft's group does not have its kind or version. Such an
// object is not validated: it would have no effect. Examples are kinds of Contiv-VPP, and kinds of Weft in a mistyped
// group.
func (o *object) refused() bool {
	group, version, _ := strings.Cut(o.text("apiVersion"), "/")
	kind := o.text("kind")
	own := v1.GroupVersion().String()
	known := ofGroup()
	way, contiv := contivKinds[o.group()]
	switch {
	case contiv:
		o.say(yamltext.Path{"kind"}, fmt.Errorf("the kind is Contiv-VPP's, and Weft has no such kind: %s", way))
	case group == v1.Group && !slices.Contains(known, kind):
		hint := nearest.Hint(kind, slices.Concat(known, contivOf(group)))
		if hint == "" {
			hint = "; known are " + strings.Join(known, ", ")
		}
		o.say(yamltext.Path{"kind"}, fmt.Errorf("unknown kind %.80q of the group %s%s", kind, v1.Group, hint))
	case group == v1.Group && version != v1.GroupVersion().Version:
		o.say(yamltext.Path{"apiVersion"},
			fmt.Errorf("unknown version %.80q of the group %s: the version is %s", version, v1.Group, own))
	case group != v1.Group && slices.Contains(known, kind) && mistyped(group):
		o.say(yamltext.Path{"apiVersion"},
			fmt.Errorf("%.80q does not have the kind %s; did you mean %s?", o.text("apiVersion"), kind, own))
	case strings.HasSuffix(group, contivDomain):
		o.say(yamltext.Path{"kind"},
			errors.New("the group is Contiv-VPP's, and Weft has no such group: delete the object"))
	default:
		return false
	}
	return true
}

// mistyped reports whether a group without Weft's kinds stands for Weft's group: it is the core group, or similar.
// Other projects have kinds of the same names, such as the IPPool of Calico.
func mistyped(group string) bool {
	return group == "" || group == v1.GroupVersion().Version || nearest.Of(group, []string{v1.Group}) != ""
}

// contivOf lists the kinds of Contiv-VPP in a group that Weft does not have.
func contivOf(group string) (names []string) {
	for _, kind := range slices.Sorted(maps.Keys(contivKinds)) {
		if name, is := strings.CutPrefix(kind, group+"/"); is {
			names = append(names, name)
		}
	}
	return names
}
