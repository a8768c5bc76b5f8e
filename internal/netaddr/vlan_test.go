package netaddr

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseVLANs(t *testing.T) {
	for _, c := range []struct{ list, want, err string }{
		{``, "", ""},
		{`300`, "300", ""},
		{`300 100-199`, "100-199, 300", ""},
		{`1 4094`, "1, 4094", ""},
		{`7-7`, "7", ""},
		{`100-199 200`, "100-199, 200", ""},
		{`0`, "", `"0" is neither a VLAN of 1 to 4094 nor a range such as 100-199`},
		{`4095`, "", `"4095" is neither`},
		{`1-4095`, "", `"1-4095" is neither`},
		{`+5`, "", `"+5" is neither`},
		{`05`, "", `"05" is neither`},
		{`5-`, "", `"5-" is neither`},
		{`-5`, "", `"-5" is neither`},
		{`1-2-3`, "", `"1-2-3" is neither`},
		{`x`, "", `"x" is neither`},
		{`200-100`, "", `"200-100" ends before it begins`},
		{`100-199 150`, "", "VLAN 150 occurs twice"},
		{`5 5`, "", "VLAN 5 occurs twice"},
	} {
		got, err := ParseVLANs(strings.Fields(c.list))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || got.String() != c.want {
			t.Errorf("%s: %q, %v; want %q, %q", c.list, got, err, c.want, c.err)
		}
	}
}

func TestVLANsAreJSONListsOfNumbersAndTexts(t *testing.T) {
	for _, c := range []struct{ text, want, err string }{
		{`[300, "100-199"]`, `["100-199","300"]`, ""},
		{`[]`, `null`, ""},
		{`[1.5]`, "", `"1.5" is neither`},
		{`[1e2]`, "", `"1e2" is neither`},
		{`[null]`, "", `"null" is neither`},
		{`[[1]]`, "", `"[1]" is neither`},
		{`"100-199"`, "", `expected a JSON list such as [300, "100-199"]`},
		{`["100\u002d199"]`, `["100-199"]`, ""},
	} {
		var v VLANs
		err := json.Unmarshal([]byte(c.text), &v)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.text, err, c.err)
		}
		if back, _ := json.Marshal(v); err == nil && string(back) != c.want {
			t.Errorf("%s became %s, want %s", c.text, back, c.want)
		}
	}
}

// A set of VLANs answers as a plain list does.
func TestVLANsAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := func(name string) ([]int, VLANs) {
			ids := rapid.SliceOfNDistinct(rapid.IntRange(1, 40), 0, 12, rapid.ID[int]).Draw(t, name)
			var texts []string
			for _, id := range ids {
				texts = append(texts, VLANRange{id, id}.String())
			}
			set, err := ParseVLANs(texts)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(ids)
			return ids, set
		}
		a, setA := list("a")
		b, setB := list("b")
		missing, common := 0, 0
		for _, id := range slices.Backward(a) {
			if slices.Contains(b, id) {
				common = id
			} else {
				missing = id
			}
		}
		if setA.Len() != len(a) || !slices.Equal(slices.Collect(setA.All()), a) || setA.Missing(setB) != missing ||
			setA.Common(setB) != common {
			t.Fatalf("%v and %v: length %d, missing %d, common %d", setA, setB, setA.Len(), setA.Missing(setB),
				setA.Common(setB))
		}
	})
}

// What is parsed has one form, which is parsed alike.
func FuzzVLANs(f *testing.F) {
	for _, text := range []string{`[300, "100-199"]`, `["1-4094"]`, `[4095]`, `[5,5]`, `[""]`, `["5-4"]`, `{}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var v, again VLANs
		if json.Unmarshal([]byte(text), &v) != nil {
			return
		}
		last := 0
		for id := range v.All() {
			if id <= last || id > MaxVLAN || !v.Contains(id) {
				t.Fatalf("%s: VLAN %d after %d", text, id, last)
			}
			last = id
		}
		back, err := json.Marshal(v)
		if err != nil || len(v) > 0 && (json.Unmarshal(back, &again) != nil || !reflect.DeepEqual(v, again)) {
			t.Errorf("%s became %s, then %v, %v", text, back, again, err)
		}
	})
}
