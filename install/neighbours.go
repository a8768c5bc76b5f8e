package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
)

// endings are those of the files that runtimes take for configurations.
var endings = []string{".conf", ".conflist", ".json"}

// neighbours are the configurations of a directory, in the order in which runtimes look at them.
func neighbours(dir string) []string {
	entries, _ := os.ReadDir(dir) // one that is not there has none; the order is that of names
	var paths []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(endings, filepath.Ext(e.Name())) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// warnOfNeighbours names the configurations that runtimes take in the place of the one that Weft is in, and those with
// which an earlier installation left Weft in a second place.
func (i *installer) warnOfNeighbours() {
	target := i.target()
	for _, path := range neighbours(filepath.Dir(target)) {
		switch {
		case path == target:
		case path < target && i.isNew(path, "before"):
			i.log.Warn("the runtime takes another configuration: pods are not wired by Weft until it is gone or sorts later",
				"file", path, "before", target)
		case path > target && callsWeft(path) && i.isNew(path, "twice"):
			i.log.Warn("another configuration is Weft's too; remove it", "file", path)
		}
	}
}

// isNew reports whether this is to be said of something: it is not what was said last.
func (i *installer) isNew(about, text string) bool {
	said := i.said[about] == text
	i.said[about] = text
	return !said
}

// callsWeft reports whether a configuration starts one of our programs, itself or as an IPAM plugin.
func callsWeft(path string) bool {
	type caller struct {
		Type string `json:"type"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	var conf struct {
		caller
		Plugins []caller `json:"plugins"`
	}
	raw, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(raw, &conf) != nil {
		return false
	}
	return slices.ContainsFunc(append(conf.Plugins, conf.caller), func(c caller) bool {
		return c.Type == program || c.Type == link || c.IPAM.Type == link
	})
}
