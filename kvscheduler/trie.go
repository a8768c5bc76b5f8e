package kvscheduler

import (
	"hash/maphash"
	"slices"
)

// trie is a persistent map from names to entries: a writer copies the path that it changes, so a snapshot costs nothing
// and its readers need no lock. Nodes made by the same edit are changed in place.
type trie struct {
	edit uint64
	kids *[16]*trie
	leaf []*entry
}

// leafMax is how many entries a leaf holds before it splits: a copy of it should stay within a cache line or two.
const leafMax = 8

var trieSeed = maphash.MakeSeed()

func hashName(name string) uint64 { return maphash.String(trieSeed, name) }

func (t *trie) find(name string) *entry {
	for h := hashName(name); t != nil && t.kids != nil; h >>= 4 {
		t = t.kids[h&15]
	}
	if t == nil {
		return nil
	}
	for _, e := range t.leaf {
		if e.ref.Name == name {
			return e
		}
	}
	return nil
}

// with returns the trie with e put in; h is the rest of the hash, depth the number of nibbles used.
func (t *trie) with(e *entry, h uint64, depth int, edit uint64) *trie {
	if t == nil {
		return &trie{edit: edit, leaf: []*entry{e}}
	}
	t = t.own(edit)
	if t.kids != nil {
		t.kids[h&15] = t.kids[h&15].with(e, h>>4, depth+1, edit)
		return t
	}
	for i, have := range t.leaf {
		if have.ref.Name == e.ref.Name {
			t.leaf[i] = e
			return t
		}
	}
	if t.leaf = append(t.leaf, e); len(t.leaf) > leafMax && depth < 15 {
		old := t.leaf
		t.leaf, t.kids = nil, new([16]*trie)
		for _, o := range old {
			rest := hashName(o.ref.Name) >> (4 * depth)
			t.kids[rest&15] = t.kids[rest&15].with(o, rest>>4, depth+1, edit)
		}
	}
	return t
}

// without returns the trie with name taken out, nil when it gets empty.
func (t *trie) without(name string, h uint64, edit uint64) *trie {
	if t == nil {
		return nil
	}
	t = t.own(edit)
	if t.kids == nil {
		t.leaf = slices.DeleteFunc(t.leaf, func(e *entry) bool { return e.ref.Name == name })
		if len(t.leaf) == 0 {
			return nil
		}
		return t
	}
	t.kids[h&15] = t.kids[h&15].without(name, h>>4, edit)
	if *t.kids == ([16]*trie{}) {
		return nil
	}
	return t
}

func (t *trie) own(edit uint64) *trie {
	if t.edit == edit {
		return t
	}
	c := &trie{edit: edit, leaf: slices.Clone(t.leaf)}
	if t.kids != nil {
		kids := *t.kids
		c.kids = &kids
	}
	return c
}

// each yields every entry until yield says stop.
func (t *trie) each(yield func(*entry) bool) bool {
	if t == nil {
		return true
	}
	for _, e := range t.leaf {
		if !yield(e) {
			return false
		}
	}
	if t.kids == nil {
		return true
	}
	for _, k := range t.kids {
		if !k.each(yield) {
			return false
		}
	}
	return true
}
